-- One line: a token bucket that many nodes share, and what each of them may keep of it. Run by src/redis/mod.rs; the same
-- in Rust, to the integer, is src/lease/bucket.rs.
--
-- KEYS[1] is a hash. Its field 's' is the bucket, 'q' the quota it was made for, and there is a field for each node:
--   s: level stamp part swept epoch busy was clock    (level: tokens there; below 0, tokens promised and not minted yet;
--     clock: the time in which it minted, which does not step back)
--   node: seq hold until epoch once later behind part at
-- What is held by nodes, and how many there are, is in 'h': held nodes
--
-- Every number is an integer below 2^53, in which doubles are exact: tokens, and microseconds of the server's clock.
-- No key means: full, and nobody holds anything.

local key, node = KEYS[1], ARGV[1]
local seq, leave = tonumber(ARGV[2]), ARGV[3] == '1'
local quota = ARGV[4]
local amount, period, burst, initial, stepped = string.match(quota, '^(%d+) (%d+) (%d+) (%d+) (%d)$')
amount, period, burst, initial, stepped =
  tonumber(amount), tonumber(period), tonumber(burst), tonumber(initial), stepped == '1'
local ttl, want, ahead, bank = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local hold, must, held_still, back = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12])
local at_once = ARGV[13] == '1'
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local EPOCH, IDLE, LONGEST, MOST_DEBT = 250000, 3600000000, 2 ^ 52, 2 ^ 52

local function numbers(text)
  local list = {}
  for number in string.gmatch(text, '-?%d+') do list[#list + 1] = tonumber(number) end
  return unpack(list)
end

local function text(...)
  local list = {...}
  for i = 1, #list do list[i] = string.format('%.0f', list[i]) end
  return table.concat(list, ' ')
end

-- Whether the text is so many integers, of which each may be negative.
local function is_numbers(text, count)
  return text and string.match(text, '^' .. string.rep('%-?%d+ ', count - 1) .. '%-?%d+$')
end

-- Without the quota and the sums nothing can be granted, and they cannot be made up. (Another quota is refused by its text.)
local function damaged(field)
  return redis.error_reply('TOLLGATEDAMAGED field ' .. field .. ' of ' .. key .. ' was overwritten')
end

local stored = redis.call('HMGET', key, 's', 'q', 'h', node)
local level, stamp, part, swept, epoch, busy, was, clock = initial, now, 0, now, 0, 0, 0, 0
local held, nodes = 0, 0
if stored[1] then
  if not stored[2] then return damaged('q') end
  if not is_numbers(stored[1], 8) then return damaged('s') end
  if not is_numbers(stored[3], 2) then return damaged('h') end
  if stored[2] ~= quota then
    return redis.error_reply('TOLLGATE this line has the quota ' .. stored[2] .. ' and not ' .. quota)
  end
  level, stamp, part, swept, epoch, busy, was, clock = numbers(stored[1])
  held, nodes = numbers(stored[3])
end
-- Fields that no node wrote are removed and refused by name, so that the next ask finds none.
local function foreign(field, count)
  return redis.error_reply('TOLLGATEFOREIGN field ' .. string.format('%q', string.sub(field, 1, 64)) .. ' of ' .. key ..
    ' was not written by a node, and is removed' .. (count > 1 and ' (' .. count .. ' such fields)' or ''))
end

if stored[4] and not is_numbers(stored[4], 9) then
  redis.call('HDEL', key, node)
  return foreign(node, 1)
end
if stored[4] and seq < numbers(stored[4]) then
  return redis.error_reply('TOLLGATE ask ' .. ARGV[2] .. ' comes after ' .. string.match(stored[4], '%d+'))
end

-- Nodes that were not heard of for their time are forgotten, and what they held is free again. (Where the clock has
-- stepped back, nobody is to be remembered for longer than that.)
local mine = stored[4]
if now >= swept + math.ceil(ttl / 4) or now < swept then
  held, nodes, swept = 0, 0, now
  local all = redis.call('HGETALL', key)
  local strange, stranger = 0, nil
  for i = 1, #all, 2 do
    local name = all[i]
    if #name > 1 and not (#name == 32 and is_numbers(all[i + 1], 9)) then
      redis.call('HDEL', key, name)
      strange, stranger = strange + 1, stranger or name
    elseif #name > 1 then
      local number, holds, ends, rest = string.match(all[i + 1], '^(%d+) (%d+) (%d+) (.*)$')
      holds, ends = tonumber(holds), tonumber(ends)
      if ends <= now then
        redis.call('HDEL', key, name)
        if name == node then mine = false end
      else
        held, nodes = held + holds, nodes + 1
        if ends > now + ttl then
          local shorter = number .. ' ' .. text(holds, now + ttl) .. ' ' .. rest
          redis.call('HSET', key, name, shorter)
          if name == node then mine = shorter end
        end
      end
    end
  end
  if stranger then return foreign(stranger, strange) end
end

-- Mints up to now: level + held never exceeds the burst. What is below one token is carried, unless the bucket was full
-- before. Where the clock has stepped back, time counts on from there: what came since the last call is lost.
local full = burst - held
if stepped then
  local steps = math.floor(now / period) - math.floor(stamp / period)
  if steps > 0 then level = math.max(level, math.min(full, level + steps * amount)) end
else
  local elapsed = now - stamp
  if elapsed > 0 then
    local periods = math.floor(elapsed / period)
    local sum = (elapsed - periods * period) * amount + part
    local left = sum % period
    local minted = periods * amount + (sum - left) / period
    part = left
    if level + minted > full or (level + minted == full and left >= amount) then part = 0 end
    level = math.max(level, math.min(full, level + minted))
  elseif level >= full and part >= amount then
    part = 0
  end
end
clock = clock + math.max(0, now - stamp)
stamp = now

local before, had, ends, seen, once, later, behind, phase, at = 0, 0, 0, -1, 0, 0, 0, 0, clock
if mine then
  before, had, ends, seen, once, later, behind, phase, at = numbers(mine)
end
local others = held - had
local refused = false
if mine and seq == before then
  hold = had -- The answer was lost: here it is again.
elseif not at_once and (want > 0 or ahead > 0) and level - want < -MOST_DEBT then
  refused = true -- A larger debt could not be counted exactly. What was swept and minted is kept.
else
  if mine then
    -- What comes back was held, and held no more: anything else would have been saved up on top of what all may hold.
    level = level + math.max(0, math.min(back, had - held_still))
  else
    nodes, held_still = nodes + 1, 0
  end
  -- What is of use at once only is given whole, or not at all.
  if at_once and level < want then want, ahead = 0, 0 end
  -- What this node may keep unused: a fair part of half of the burst, or what a caller wanted to have at once. The other
  -- half is for claims that pass while all of that is kept.
  local half = math.floor(burst / 2)
  local fair = math.max(1, math.floor(burst / (2 * (nodes + 1))))
  hold = math.max(held_still, math.min(math.max(math.min(hold, fair), must), half - others))
  -- For waiters tokens are promised that are not minted yet. Who only looks ahead gets what is there: but for a caller who was
  -- denied.
  local more = math.max(0, math.min(ahead, hold - bank))
  if want == 0 then more = math.min(more, math.max(level, must, 0)) end
  local tokens = want + more
  -- No more is held than there is to hold: what is held is missing in the bucket.
  hold = math.max(held_still, math.min(hold, bank + more))
  once = math.max(0, math.min(level, tokens))
  later = tokens - once
  behind = math.max(0, -level)
  phase = stepped and now % period or part
  at = clock
  level = level - tokens
  if level > burst - others - hold then
    level, part = burst - others - hold, 0
  end
  -- How many nodes have waiters: counted anew in each epoch, as of this one or the last.
  local this = math.floor(now / EPOCH)
  if this ~= epoch then
    was = this == epoch + 1 and busy or 0
    busy, epoch = 0, this
  end
  if want > 0 and not at_once and seen ~= this then
    busy, seen = busy + 1, this
  end
end

if refused then
  -- The node stays as it was.
elseif leave then
  redis.call('HDEL', key, node)
  held, nodes = others, nodes - 1
  hold = 0
else
  held = others + hold
  redis.call('HSET', key, node, text(seq, hold, now + ttl, seen, once, later, behind, phase, at))
end
redis.call('HSET', key, 's', text(level, stamp, part, swept, epoch, busy, was, clock), 'q', quota, 'h', text(held, nodes))

-- Full and idle is the same as not there: once the bucket fills up and nobody can hold anything. One that would not begin
-- full is kept for an hour longer.
local need = math.max(0, burst - level)
local fills = math.min(math.ceil(need / amount) * period, LONGEST)
local idle = initial < burst and IDLE or 0
redis.call('PEXPIRE', key, string.format('%.0f', math.ceil(math.max(fills + idle, ttl) / 1000) + 1))

if refused then
  return redis.error_reply('TOLLGATE this line owes ' .. text(math.max(0, -level)) .. ' tokens and promises no more')
end
return {before, clock - at, once, later, behind, phase, hold, nodes, math.max(1, busy, was), math.max(0, level)}
