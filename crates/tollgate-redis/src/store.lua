-- One store: a token bucket that many nodes share, and the allowance of each node. Run by src/lib.rs, after claim.lua,
-- which ends the script for most claims of keys. The same algorithm in Rust, equal to the integer, is
-- src/distributed/bucket.rs.
--
-- KEYS[1] is a hash. Field 's' holds the bucket, 'q' its quota, 'h' the sum of all allowances and the number of nodes
-- ("held nodes"), 'u' the instant until which a node is remembered at most. Each node has one further field:
--   q: amount period burst initial stepped [version]
--     (no version is version 0)
--   s: level stamp part swept epoch busy was clock
--     (level: available tokens; below 0, tokens promised and not minted yet; clock: the total
--     time for which the bucket has minted, which does not step back)
--   node: seq hold until epoch once later behind part at
-- While no node is known, the hash may have the field 's' alone, in the form of claim.lua.
--
-- Nodes of several releases share a store while a release is deployed. So no field changes its form: what is new gets a
-- field of its own, with one letter. Releases that do not know the field leave it as it is, and others do without it. What
-- an earlier release must not overlook has the place of an old field in a form that it calls damaged: the form of claim.lua.
--
-- Every number is an integer below 2^53, where doubles are exact: tokens, or microseconds of the server's clock. A
-- missing key means that the bucket is full and no node holds anything.

local key, node = KEYS[1], args[1]
local seq, leave = tonumber(args[2]), args[3] == '1'
local ttl, want, ahead, bank = tonumber(args[5]), tonumber(args[6]), tonumber(args[7]), tonumber(args[8])
local hold, must, held_still, back = tonumber(args[9]), tonumber(args[10]), tonumber(args[11]), tonumber(args[12])
local at_once = args[13] == '1'
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local EPOCH, IDLE, LONGEST, MOST_DEBT = 250000, 3600000000, 2 ^ 52, 2 ^ 52
ttl = math.min(ttl, LONGEST)

-- What the script writes for the bucket, for the sums, and for a node. Only the level and the epoch may be negative.
local BUCKET = '^(%-?%d+) (%d+) (%d+) (%d+) (%-?%d+) (%d+) (%d+) (%d+)$'
local SUMS = '^(%d+) (%d+)$'
local NODE = '^(%d+) (%d+) %d+ (%-?%d+) %d+ %d+ %d+ %d+ %d+$'
local ANSWER = '^%d+ %d+ %d+ %-?%d+ (%d+) (%d+) (%d+) (%d+) (%d+)$'
local CLAIMS = '^(%d+) (%d+) (%d+) (%d+) (%d+ %d+ %d+ %d+ %d.*)$'

-- The numbers of a text, or nothing if the script has not written it.
local function numbers(text, pattern)
  local a, b, c, d, e, f, g, h = string.match(text or '', pattern)
  return tonumber(a), tonumber(b), tonumber(c), tonumber(d), tonumber(e), tonumber(f), tonumber(g), tonumber(h)
end

-- `%d` takes half the time of `%.0f`, but has 32 bits where Redis was built for 32 bits.
local FORMAT, LENGTH = '%d %d %d %d %d %d %d %d %d', 3
if string.format('%d', LONGEST) ~= '4503599627370496' then
  FORMAT, LENGTH = '%.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f', 5
end
local function text(...)
  return string.format(string.sub(FORMAT, 1, LENGTH * select('#', ...) - 1), ...)
end

-- The amount, period, burst, initial tokens, kind (1 if stepped) and version of a quota's text.
local function terms(text)
  local a, p, b, i, s, v = string.match(text, '^([1-9]%d*) ([1-9]%d*) ([1-9]%d*) (%d+) ([01]) ?(%d*)$')
  return tonumber(a), tonumber(p), tonumber(b), tonumber(i), tonumber(s), tonumber(v) or 0
end

-- Nothing can be granted without the quota and the sums, and the script cannot restore them.
local function damaged(field)
  return redis.error_reply('TOLLGATEDAMAGED field ' .. field .. ' of ' .. key .. ' was overwritten')
end

local stored = redis.call('HMGET', key, 's', 'q', 'h', node, 'u')
local quota = args[4]
local amount, period, burst, initial, stepped, version = terms(quota)
local level, stamp, part, swept, epoch, busy, was, clock, last_until = initial, now, 0, now, 0, 0, 0, 0, now
local held, nodes = 0, 0
-- Whether the request has another quota than the store, and a newer one. Another quota that is not newer is older.
local is_other, is_newer = false, false
local single, seconds, micros, rest, its_quota = string.match(stored[1] or '', CLAIMS)
if single then
  level, stamp, part, stored[2] = tonumber(single), seconds * 1000000 + micros, tonumber(rest), its_quota
elseif stored[1] then
  level, stamp, part, swept, epoch, busy, was, clock = numbers(stored[1], BUCKET)
  if not level then return damaged('s') end
  held, nodes = string.match(stored[3] or '', SUMS)
  held, nodes = tonumber(held), tonumber(nodes)
  if not held then return damaged('h') end
  last_until = tonumber(string.match(stored[5] or '', '^%d+$'))
  -- An earlier release has written the store: a sweep finds out.
  if not last_until then last_until, swept = now, 0 end
end
if stored[1] and stored[2] ~= quota then
  local has = {terms(stored[2] or '')}
  if not has[1] then return damaged(single and 's' or 'q') end
  is_other = has[1] ~= amount or has[2] ~= period or has[3] ~= burst or has[5] ~= stepped
  is_newer = version > has[6]
  if is_other and version == has[6] then return redis.error_reply('TOLLGATEQUOTA ' .. stored[2]) end
  quota = stored[2]
  amount, period, burst, initial, stepped, version = unpack(has)
end
-- A field that no node wrote is removed, and the error names it. The next request finds no such field.
local function foreign(field, count)
  return redis.error_reply('TOLLGATEFOREIGN field ' .. string.format('%q', string.sub(field, 1, 64)) .. ' of ' .. key ..
    ' was not written by a node, and is removed' .. (count > 1 and ' (' .. count .. ' such fields)' or ''))
end

if stored[4] then
  local last = tonumber((string.match(stored[4], NODE)))
  if not last then
    redis.call('HDEL', key, node)
    return foreign(node, 1)
  end
  if seq < last then
    return redis.error_reply('TOLLGATE request ' .. args[2] .. ' comes after ' .. text(last))
  end
end

-- Mints up to `time`: level + held never exceeds the burst. The fraction of a token is carried, unless the bucket was
-- already full. If the clock has stepped back, time continues from there: the tokens since the last call are lost.
-- After a change of the quota the nodes may hold more than the burst. A debt is paid off all the same.
local function mint(time)
  local full = math.max(0, burst - held)
  if stepped == 1 then
    local steps = math.floor(time / period) - math.floor(stamp / period)
    if steps > 0 then level = math.max(level, math.min(full, level + steps * amount)) end
  else
    local elapsed = time - stamp
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
  clock = clock + math.max(0, time - stamp)
  stamp = time
end

-- Forgets the nodes that have reached the end of their time to live. Until then a node may use what it keeps, so the
-- bucket has space for these tokens only from then on: it mints up to the last of these ends first. If the clock has
-- stepped back, the ends step back with it: no node is forgotten sooner or later for that.
local mine = stored[4]
if nodes == 0 or now >= swept + math.ceil(ttl / 4) or now < swept then
  local all = nodes > 0 and redis.call('HGETALL', key) or {}
  local foreign_count, foreign_name = 0, nil
  local keep, count, gone, last_end = 0, 0, {}, 0
  local step = now < swept and stamp - now or 0
  last_until = now
  for i = 1, #all, 2 do
    local name = all[i]
    if #name > 1 and not (#name == 32 and string.match(all[i + 1], NODE)) then
      redis.call('HDEL', key, name)
      foreign_count, foreign_name = foreign_count + 1, foreign_name or name
    elseif #name > 1 then
      local number, holds, ends, rest = string.match(all[i + 1], '^(%d+) (%d+) (%d+) (.*)$')
      holds, ends = tonumber(holds), tonumber(ends) - step
      if ends <= now then
        gone[#gone + 1], last_end = name, math.max(last_end, ends)
      else
        keep, count, last_until = keep + holds, count + 1, math.max(last_until, ends)
        if step > 0 then
          local moved = number .. ' ' .. text(holds, ends) .. ' ' .. rest
          redis.call('HSET', key, name, moved)
          if name == node then mine = moved end
        end
      end
    end
  end
  if foreign_name then return foreign(foreign_name, foreign_count) end
  for _, name in ipairs(gone) do
    redis.call('HDEL', key, name)
    if name == node then mine = false end
  end
  if last_end > stamp then mint(last_end) end
  held, nodes, swept = keep, count, now
end
mint(now)
-- A node that leaves is not remembered. Others may be by a release that does not write `u`.
if not leave or nodes > 0 then last_until = math.max(last_until, now + ttl) end

-- In how many microseconds the bucket mints these tokens, rounded up to periods.
local function fills(tokens) return math.min(math.ceil(tokens / amount) * period, LONGEST) end

-- Lowers the level to `most`, but not below 0.
local function cut(most)
  most = math.max(most, math.min(level, 0))
  if level > most then level, part = most, 0 end
end

-- A dividend / divisor, rounded up, and by a little more if the doubles may have been rounded down.
local function rounded_up(dividend, divisor)
  local quotient = dividend / divisor
  if dividend > 2 ^ 53 then return math.ceil(quotient * (1 + 1 / 2 ^ 50)) end
  return math.ceil(quotient)
end

-- A newer quota replaces that of the store. Tokens stay, as far as the new burst allows. Promised instants stay too: the
-- debt becomes as many tokens as the new quota mints in the time in which the old one would have minted the debt. So the
-- first new promise comes after the last old one.
local refused = false
if is_newer then
  local to_amount, to_period, to_burst, to_initial, to_stepped, to_version = terms(args[4])
  local owed, to_part = level, part
  if to_amount ~= amount or to_period ~= period or to_stepped ~= stepped then
    if level < 0 then
      local rest = stepped == 1 and math.ceil(-level / amount) * period - now % period
        or rounded_up(-level * period - part, amount)
      to_part = 0
      if to_stepped == 1 then
        owed = -math.floor((rest + now % to_period) / to_period) * to_amount
      else
        owed = -rounded_up(rest * to_amount, to_period)
        -- The part of a token by which the debt was rounded up, if that is exact.
        if -owed * to_period <= 2 ^ 53 then to_part = -owed * to_period - rest * to_amount end
      end
    elseif stepped == 1 or to_stepped == 1 then
      to_part = 0
    else
      -- Two parts less than the doubles say, in case they were rounded up.
      to_part = math.max(0, math.floor(part * (to_period / period)) - 2)
    end
    refused = owed < -MOST_DEBT
    if not refused then
      -- A promise that is repeated would be read by the new rate.
      local all = redis.call('HGETALL', key)
      for i = 1, #all, 2 do
        if #all[i] == 32 and string.match(all[i + 1], NODE) then
          local head, tail = string.match(all[i + 1], '^(%d+ %d+ %d+ %-?%d+ %d+) %d+ (.*)$')
          redis.call('HSET', key, all[i], head .. ' 0 ' .. tail)
          if all[i] == node and mine then mine = head .. ' 0 ' .. tail end
        end
      end
    end
  end
  if not refused then
    quota, level, part, is_other = args[4], owed, to_part, false
    amount, period, burst, initial, stepped, version = to_amount, to_period, to_burst, to_initial, to_stepped, to_version
    cut(burst - held)
  end
end

local before, had, seen, once, later, behind, phase, at = 0, 0, -1, 0, 0, 0, 0, clock
if mine then
  before, had, seen = string.match(mine, NODE)
  before, had, seen = tonumber(before), tonumber(had), tonumber(seen)
end
local others = held - had
if refused then
  -- A newer quota is not taken over: its debt could not be counted exactly.
elseif mine and seq == before then
  -- The answer was lost: repeat it.
  hold = had
  once, later, behind, phase, at = numbers(mine, ANSWER)
elseif not at_once and (want > 0 or ahead > 0) and level - want < -MOST_DEBT then
  refused = true -- A larger debt could not be counted exactly. What was swept and minted is kept.
else
  if mine then
    -- Returned tokens must have been held and be held no more. Otherwise they would be saved up on top of what all
    -- nodes may hold. While the bucket owes tokens, the returned ones are lost: the promised instants are fixed, so the
    -- tokens could only be promised anew beside tokens of other nodes. Two nodes would then save up a claim each at the
    -- same time, and a third one could be given the allowance that has become free.
    if level >= 0 then level = level + math.max(0, math.min(back, had - held_still)) end
  else
    nodes, held_still = nodes + 1, 0
  end
  -- A request for tokens at once gets all of them or none. The numbers of other requests depend on the quota: a node that
  -- has chosen them by an older one asks anew when it knows the newer one.
  if at_once and level < want or not at_once and is_other then want, ahead = 0, 0 end
  -- The node's allowance: a fair part of half of the burst, or the cost that a caller was denied. The other half is for
  -- claims that pass while all of the first half is kept.
  local half = math.floor(burst / 2)
  local fair = math.max(1, math.floor(burst / (2 * (nodes + 1))))
  hold = math.max(held_still, math.min(math.max(math.min(hold, fair), must), half - others))
  -- Waiters are promised tokens that are not minted yet. A request in advance gets available tokens only, except for a
  -- caller that was denied.
  local more = math.max(0, math.min(ahead, hold - bank))
  if want == 0 then more = math.min(more, math.max(level, must, 0)) end
  local tokens = want + more
  -- The allowance is no larger than the tokens there are to keep: allowances reduce the capacity of the bucket.
  hold = math.max(held_still, math.min(hold, bank + more))
  once = math.max(0, math.min(level, tokens))
  later = tokens - once
  behind = math.max(0, -level)
  phase = stepped == 1 and now % period or part
  at = clock
  level = level - tokens
  cut(burst - others - hold)
  -- Counts the nodes with waiters, in each epoch anew. The answer reports the larger count of this epoch and the last.
  -- While the bucket owes tokens, each node with waiters asks again before its own have come. So an epoch lasts until what
  -- was owed before this request has been minted, and all of them are counted in it, however far from the store they are.
  local this = math.floor(now / EPOCH)
  local passed, length = this - epoch, 1 + math.floor((fills(behind) + EPOCH / 2) / EPOCH)
  if passed < 0 or passed >= length then
    was = passed >= 0 and passed < 2 * length and busy or 0
    busy, epoch = 0, this
  end
  if want > 0 and not at_once and seen ~= epoch then
    busy, seen = busy + 1, epoch
  end
end

-- The node's new field.
local row
if refused then
  -- The node stays as it was.
elseif leave then
  if mine then redis.call('HDEL', key, node) end
  held, nodes = others, nodes - 1
  hold = 0
else
  held = others + hold
  row = text(seq, hold, now + ttl, seen, once, later, behind, phase, at)
end
-- A claim of a key that asks for itself changes the bucket alone: fields that stay the same are not written again.
local bucket, sums, last = text(level, stamp, part, swept, epoch, busy, was, clock), text(held, nodes), text(last_until)
if row then
  redis.call('HSET', key, 's', bucket, 'q', quota, 'h', sums, 'u', last, node, row)
elseif stored[2] == quota and stored[3] == sums and stored[5] == last then
  redis.call('HSET', key, 's', bucket)
else
  redis.call('HSET', key, 's', bucket, 'q', quota, 'h', sums, 'u', last)
end

-- A bucket that is full, with no allowances left, equals a missing key: it expires at that time. A bucket that would
-- not begin full is kept for one hour longer. The node whose time to live ends last need not be the one that asks.
local idle = initial < burst and IDLE or 0
local keep = math.max(fills(math.max(0, burst - level)) + idle, last_until - now + fills(math.min(held, burst)))
keep = math.min(keep, LONGEST)
redis.call('PEXPIRE', key, text(math.ceil(keep / 1000) + 1))

if refused then
  return redis.error_reply('TOLLGATE the store owes ' .. text(math.max(0, -level)) ..
    ' tokens and promises no more: try later')
end
local answer =
  {before, clock - at, once, later, behind, phase, hold, nodes, math.max(1, busy, was), math.max(0, level)}
if is_other then
  for _, number in ipairs({amount, period, burst, initial, stepped, version}) do answer[#answer + 1] = number end
end
return answer
