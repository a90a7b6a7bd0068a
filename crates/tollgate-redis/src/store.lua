-- One store: a token bucket that many nodes share. Run by src/lib.rs. The same algorithm in Rust, equal to the integer and
-- with the same names, is `SharedBucket` of tollgate (src/distributed/bucket.rs), which explains each rule.
--
-- KEYS[1] is a hash. Field 'q' is the quota, 's' the bucket, and each node has one further field, of 32 hexadecimal digits:
--   q: amount period burst initial stepped [version]   (no version is version 0)
--   s: level stamp part swept epoch busy was clock placed fill held nodes last_until last credit void, and from and to of
--      each promise that was returned
--   node: number allowance until epoch granted promised queued_before part at last first since expected grace
--
-- Every number is an integer below 2^53, where doubles are exact: tokens, or microseconds of the server's clock. A
-- missing key means that the bucket is full and no node holds anything.

local key, node, asked = KEYS[1], ARGV[1], ARGV[5]
local function exact(index) return math.min(tonumber(ARGV[index]), 2 ^ 53) end
local number, leave, at_once = tonumber(ARGV[2]), ARGV[3] == '1', ARGV[4] == '1'
local EPOCH, IDLE, LONGEST, MAX_DEBT = 250000, 3600000000, 2 ^ 52, 2 ^ 52
local HORIZON, LONGEST_HORIZON, GRACE, SLEEP, MOST_PLACES = 250000, 1000000, 100000, 2000000, 1000
local MOST_RETURNED, LAST, SLACK = 8, 2 ^ 52, 100
local ttl, want, first, age = math.min(exact(6), LONGEST), exact(7), exact(8), math.min(exact(9), LONGEST)
local useful, rtt, back, unused, its_last = exact(10), exact(11), exact(12), exact(13), exact(14)
local rest, ahead, banked, allowance, minimum, keeps = exact(15), exact(16), exact(17), exact(18), exact(19), exact(20)
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- What the script writes. Only the level, epochs and `since` may be negative.
local BUCKET = '^(%-?%d+) (%d+) (%d+) (%d+) (%-?%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)([%d ]*)$'
local NODE = '^(%d+) (%d+) (%d+) (%-?%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%-?%d+) (%d+) (%d+)$'

-- The numbers of a text, or nothing if the script has not written it.
local function numbers(text, pattern)
  local list = {string.match(text or '', pattern)}
  for index = 1, #list do list[index] = tonumber(list[index]) end
  return unpack(list)
end

-- `%d` takes half the time of `%.0f`, but has 32 bits where Redis was built for 32 bits.
local FORMAT, LENGTH = '%d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d', 3
if string.format('%d', LONGEST) ~= '4503599627370496' then
  FORMAT, LENGTH = '%.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f', 5
end
local function text(...)
  return string.format(string.sub(FORMAT, 1, LENGTH * select('#', ...) - 1), ...)
end

-- The amount, period, burst, initial tokens, kind (1 if stepped) and version of a quota's text.
local function terms(text)
  local a, p, b, i, s, v = string.match(text, '^([1-9]%d*) ([1-9]%d*) ([1-9]%d*) (%d+) ([01]) ?(%d*)$')
  return tonumber(a), tonumber(p), tonumber(b), tonumber(i), tonumber(s), tonumber(v) or 0
end

-- Nothing can be granted without the quota and the bucket, and the script cannot restore them.
local function damaged(field)
  return redis.error_reply('TOLLGATEDAMAGED field ' .. field .. ' of ' .. key .. ' was overwritten')
end

-- A field that no node wrote is removed, and the error names it. The next request finds no such field.
local function foreign(field, count)
  return redis.error_reply('TOLLGATEFOREIGN field ' .. string.format('%q', string.sub(field, 1, 64)) .. ' of ' .. key ..
    ' was not written by a node, and is removed' .. (count > 1 and ' (' .. count .. ' such fields)' or ''))
end

local stored = redis.call('HMGET', key, 's', 'q', node)
local quota, mine = asked, stored[3]
local amount, period, burst, initial, stepped, version = terms(asked)
local level, stamp, part, swept, epoch, busy, was, clock, placed, fill = initial, now, 0, now, 0, 0, 0, 0, 0, 0
local held, nodes, last_until, last, credit, void, returned = 0, 0, now, 0, 0, 0, {}
-- Whether the request has another quota than the store, and a newer one. Another quota that is not newer is older.
local is_other, is_newer = false, false
if stored[1] then
  level, stamp, part, swept, epoch, busy, was, clock, placed, fill, held, nodes, last_until,
    last, credit, void = numbers(stored[1], BUCKET)
  if not level then return damaged('s') end
  for from, to in string.gmatch(select(17, string.match(stored[1], BUCKET)), ' (%d+) (%d+)') do
    returned[#returned + 1] = {from = tonumber(from), to = tonumber(to)}
  end
  if stored[2] ~= asked then
    local has = {terms(stored[2] or '')}
    if not has[1] then return damaged('q') end
    is_other = has[1] ~= amount or has[2] ~= period or has[3] ~= burst or has[5] ~= stepped
    is_newer = version > has[6]
    if is_other and version == has[6] then return redis.error_reply('TOLLGATEQUOTA ' .. stored[2]) end
    quota = stored[2]
    amount, period, burst, initial, stepped, version = unpack(has)
  end
end
if mine then
  local last = numbers(mine, NODE)
  if not last then
    redis.call('HDEL', key, node)
    return foreign(node, 1)
  end
  if number < last then
    return redis.error_reply('TOLLGATE request ' .. ARGV[2] .. ' comes after ' .. text(last))
  end
end

-- a / b, rounded down.
local function div(a, b) return (a - a % b) / b end

-- The progress towards the next token, in parts of the period; of a stepped quota, the time since the period began.
local function phase() return stepped == 1 and stamp % period or part end

-- The most tokens that there may be beside the allowances.
local function most(held) return math.max(burst - held, math.min(fill, burst), 0) end

-- The number of the last promised token that was minted.
local function minted_number() return last + math.min(level, 0) end

-- Forgets the returned promises that have no tokens any more.
local function compact()
  local kept = {}
  for _, run in ipairs(returned) do
    if run.from < run.to then kept[#kept + 1] = run end
  end
  returned = kept
end

-- Lowers the level to what may be there beside allowances of `held`, and the credit to half of the burst less these. A full
-- bucket has no part of a token.
local function cut(held)
  credit = math.max(0, math.min(credit, math.floor(burst / 2) - held))
  if level < 0 then return end
  level, credit = level + credit, 0
  if level >= most(held) then level, part = most(held), 0 end
end

-- How many tokens are minted in the next `micros` microseconds, up to 2^52.
local function minted_within(micros)
  if stepped == 1 then return math.min(div(phase() + micros, period) * amount, MAX_DEBT) end
  return math.min(div(micros, period) * amount + div(micros % period * amount + part, period), MAX_DEBT)
end

-- In how many microseconds so many tokens are minted, up to 2^52; 0 if there are that many already.
local function time_to(tokens)
  if tokens <= 0 then return 0 end
  local over = tokens % amount
  local micros = (tokens - over) / amount * period
  if stepped == 1 then
    micros = micros + (over > 0 and period or 0) - phase()
  else
    local left = over * period - part
    micros = micros - div(-left, amount)
  end
  return math.max(0, math.min(micros, LONGEST))
end

-- Mints up to `time`. The fraction of a token is carried, unless the bucket was already full. If the clock has stepped back,
-- time continues from there: the tokens since the last call are lost.
local function mint(time)
  local minted, left = 0, part
  if stepped == 1 then
    minted = math.max(0, div(time, period) - div(stamp, period)) * amount
  elseif time > stamp then
    local over = (time - stamp) % period
    local sum = over * amount + part
    left = sum % period
    minted = (time - stamp - over) / period * amount + (sum - left) / period
    part = left
  end
  clock = clock + math.max(0, time - stamp)
  if time < stamp then void, returned = last, {} end
  stamp = time
  local full = most(held)
  if stepped == 0 and (level + minted > full or level + minted == full and left >= amount) then part = 0 end
  if minted > 0 then level = math.max(level, math.min(full, level + minted)) end
  for _, run in ipairs(returned) do
    local from = math.max(run.from, math.min(run.to, minted_number()))
    credit, run.from = credit + from - run.from, from
  end
  compact()
  if credit > 0 then cut(held) end
  if last > LAST then last, void, returned = -math.min(level, 0), 0, {} end
end

-- Forgets the nodes that have reached the end of their time to live. Until then a node may use what it keeps, so the
-- bucket has space for these tokens only from then on: it mints up to the last of these ends first. If the clock has
-- stepped back, the ends step back with it: no node is forgotten sooner or later for that.
local is_due = nodes == 0 or now >= swept + math.ceil(ttl / 4) or now < swept
local all = nodes > 0 and (is_due or placed > 0) and redis.call('HGETALL', key) or {}
local gone = {}
if is_due then
  local foreign_count, foreign_name = 0, nil
  local keep, count, last_end = 0, 0, 0
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
        gone[name], last_end = true, math.max(last_end, ends)
      else
        keep, count, last_until = keep + holds, count + 1, math.max(last_until, ends)
        if step > 0 then
          all[i + 1] = number .. ' ' .. text(holds, ends) .. ' ' .. rest
          redis.call('HSET', key, name, all[i + 1])
          if name == node then mine = all[i + 1] end
        end
      end
    end
  end
  if foreign_name then return foreign(foreign_name, foreign_count) end
  for name in pairs(gone) do redis.call('HDEL', key, name) end
  if gone[node] then mine = false end
  if last_end > stamp then mint(last_end) end
  held, nodes, swept = keep, count, now
end
mint(now)

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
  local to_amount, to_period, to_burst, to_initial, to_stepped, to_version = terms(asked)
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
    refused = owed < -MAX_DEBT
    if not refused then
      -- A promise that is repeated would be read by the new rate.
      all = redis.call('HGETALL', key)
      for i = 1, #all, 2 do
        if #all[i] == 32 then
          local head, tail = string.match(all[i + 1], '^(%d+ %d+ %d+ %-?%d+ %d+) %d+ (.*)$')
          all[i + 1] = head .. ' 0 ' .. tail
          redis.call('HSET', key, all[i], all[i + 1])
          if all[i] == node and mine then mine = all[i + 1] end
        end
      end
    end
  end
  if not refused then
    if level < 0 and (to_amount ~= amount or to_period ~= period or to_stepped ~= stepped) then
      last, void, returned = last - owed, last, {}
    end
    quota, level, part, is_other = asked, owed, to_part, false
    amount, period, burst, initial, stepped, version = to_amount, to_period, to_burst, to_initial, to_stepped, to_version
    cut(held)
  end
end

local before, had, seen, granted, promised, queued_before, at = 0, 0, -1, 0, 0, 0, clock
local progress, promised_last, has_first, since, expected, grace, until_ = 0, 0, 0, 0, 0, 0, now + ttl
if mine then
  local _
  before, had, _, seen, granted, promised, queued_before, progress, at, promised_last, has_first, since, expected,
    grace = numbers(mine, NODE)
end
local is_repeat = mine and number == before
local others = held - had
local reach = math.max(HORIZON, math.min(LONGEST_HORIZON, math.floor(rtt * 5 / 2)))

local row, answer
if not refused then
  -- The places of other nodes, and those that are older than the first claim. A place further ahead than its longest sleep
  -- is void: the clock was set back.
  local count, all_first, older, oldest, oldest_first = 0, 0, 0, nil, 0
  for i = 1, placed > 0 and #all or 0, 2 do
    if #all[i] == 32 and all[i] ~= node and not gone[all[i]] then
      local _, _, _, _, _, _, _, _, _, _, its, from, comes, late = numbers(all[i + 1], NODE)
      if its > 0 and now <= comes + late and comes <= now + math.max(SLEEP, math.floor((now - from) / 2)) then
        its, count = math.min(its, burst), count + 1
        all_first = all_first + its
        if from < now - age then older = older + its end
        if not oldest or from < oldest or from == oldest and its > oldest_first then oldest, oldest_first = from, its end
      end
    end
  end

  -- Records the tokens of all places, and up to how many tokens the bucket fills: those of the oldest place.
  local function note_places(first, since)
    placed, fill = all_first + first, first
    if oldest and (first == 0 or oldest < since or oldest == since and oldest_first > first) then fill = oldest_first end
  end
  -- What was saved up for a node that has not come, or whose claim has left, is not there any more.
  note_places(math.min(has_first, first), since)
  cut(held)
  if mine and not is_repeat then
    -- Returned promises: the last ones are not promised any more; those that have later ones behind them can be promised anew.
    local minted = minted_number()
    local is_on_time = time_to(its_last - minted) <= rest + SLACK
    if its_last <= last and its_last - unused >= void and is_on_time then
      local run = {from = math.max(its_last - unused, minted), to = math.max(its_last, minted)}
      back = back + unused - (run.to - run.from)
      returned[#returned + 1] = run
      table.sort(returned, function(a, b) return a.from < b.from or a.from == b.from and a.to < b.to end)
    end
    while returned[1] and returned[#returned].to >= last do
      local from = table.remove(returned).from
      level, last = level + last - from, from
    end
    compact()
    if #returned > MOST_RETURNED then table.remove(returned, 1) end
    if level < 0 then credit = credit + back else level = level + back end
    cut(others + keeps)
  end
  first = math.min(first, burst)
  local there = math.max(level, 0) + credit
  if is_repeat then
    -- The answer was lost: repeat it.
    allowance = had
  else
    if not mine then nodes, keeps = nodes + 1, 0 end
    -- The node has chosen these numbers by an older quota. It asks anew when it knows the newer one.
    local is_outdated = not at_once and is_other
    -- `want`, or `first`, or nothing, of tokens from one source: those that are there in spite of a debt, returned ones that
    -- come after all that the node still has, or those that are not promised yet.
    local within = at_once and 0 or minted_within(math.min(reach, useful))
    local minted, later = minted_number(), level + within
    local function in_time(run) return math.max(0, math.min(run.to, minted + within) - run.from) end
    local can = later
    if level < 0 then
      can = credit + math.max(0, later)
      for _, run in ipairs(returned) do can = can + in_time(run) end
    end
    can = can - (at_once and all_first or older)
    local function given_of(tokens)
      local most = math.min(tokens, can)
      if is_outdated then return 0 end
      if want <= most then return want end
      if first <= most and not at_once then return first end
      return 0
    end
    local from_there, again = level < 0 and given_of(credit) or 0, nil
    for _, run in ipairs(returned) do
      if not again and run.from >= its_last - unused and given_of(in_time(run)) > 0 then again = run end
    end
    local given = from_there
    if given == 0 then given = given_of(again and in_time(again) or later) end
    local is_new = from_there == 0 and not again
    -- The node's allowance: a fair part of half of the burst, or the cost that a caller was denied.
    local half = math.floor(burst / 2)
    local fair = math.max(1, math.floor(burst / (2 * (nodes + 1))))
    allowance = math.max(keeps, math.min(math.max(math.min(allowance, fair), minimum), half - others))
    -- Callers to come get tokens that are there and for which no claim waits; beside claims that wait, and for one that was
    -- denied, those of the horizon.
    local spare = level + ((minimum > 0 or given > 0) and minted_within(reach) or 0)
    local limit = (is_outdated or not is_new) and 0 or spare - given - all_first
    local more = math.max(0, math.min(ahead, allowance - banked, limit))
    local tokens = given + more
    allowance = math.max(keeps, math.min(allowance, banked + more))
    local owed = math.max(0, -level)
    granted, queued_before = math.max(0, math.min(level, tokens)), owed
    promised_last = last + tokens - granted
    if from_there > 0 then
      granted, credit = from_there, credit - from_there
    elseif again then
      queued_before = again.from - minted
      again.from = again.from + given
      promised_last = again.from
      compact()
    else
      level, last = level - tokens, promised_last
    end
    promised = tokens - granted
    if promised == 0 then promised_last = 0 end
    progress = phase()
    at = clock
    cut(others + allowance)
    -- Counts the nodes with waiters, in each epoch anew.
    local this = math.floor(now / EPOCH)
    local fills = math.min(math.ceil(owed / amount) * period, LONGEST)
    local passed, length = this - epoch, 1 + math.floor((fills + EPOCH / 2) / EPOCH)
    if passed < 0 or passed >= length then
      was = passed >= 0 and passed < 2 * length and busy or 0
      busy, epoch = 0, this
    end
    if want > 0 and not at_once and seen ~= epoch then busy, seen = busy + 1, epoch end
    has_first, since, expected, grace = 0, 0, 0, 0
  end
  -- A node that gets nothing, and whose claims can still be served in time, gets a place.
  local is_sent_away = granted + promised == 0 and first > 0
  local wait = is_sent_away and time_to(first + older - level) or 0
  if is_sent_away and not is_repeat and wait <= useful and not at_once and count < MOST_PLACES then
    has_first, since = first, now - age
    expected = now + math.max(0, math.min(wait - reach, math.max(SLEEP, math.floor(age / 2))))
    grace = math.max(GRACE, math.floor(math.min(rtt, LONGEST_HORIZON) * 5 / 4))
  end
  if has_first > 0 then until_ = math.max(until_, expected + grace) end
  note_places(has_first, since)

  if leave then
    if mine then redis.call('HDEL', key, node) end
    held, nodes, allowance = others, nodes - 1, 0
  else
    held, last_until = others + allowance, math.max(last_until, until_)
    row = text(number, allowance, until_, seen, granted, promised, queued_before, progress, at, promised_last, has_first,
      since, expected, grace)
  end
  local parts = math.max(1, busy, was)
  -- One part more is left for a node that joins. A far node gets at least what is minted until its next answer.
  local span = math.max(div(reach * parts, parts + 1), math.min(rtt, reach))
  local its_part = math.max(1, div(there + minted_within(span), parts))
  answer = {before, clock - at, granted, promised, queued_before, progress, wait, its_part, allowance, nodes,
    math.max(0, level) + credit, promised_last, clock}
end

local bucket = text(level, stamp, part, swept, epoch, busy, was, clock, placed, fill, held, nodes, last_until, last, credit, void)
for _, run in ipairs(returned) do bucket = bucket .. ' ' .. text(run.from, run.to) end
if row then
  redis.call('HSET', key, 's', bucket, 'q', quota, node, row)
elseif stored[2] == quota then
  redis.call('HSET', key, 's', bucket)
else
  redis.call('HSET', key, 's', bucket, 'q', quota)
end

-- A bucket that is full, with no allowances left, equals a missing key: it expires at that time. A bucket that would
-- not begin full is kept for one hour longer. The node whose time to live ends last need not be the one that asks.
local function fills(tokens) return math.min(math.ceil(tokens / amount) * period, LONGEST) end
local idle = initial < burst and IDLE or 0
local keep = math.max(fills(math.max(0, burst - level)) + idle, last_until - now + fills(math.min(held, burst)))
redis.call('PEXPIRE', key, text(math.ceil(math.min(keep, LONGEST) / 1000) + 1))

if refused then
  return redis.error_reply('TOLLGATE the store owes ' .. text(math.max(0, -level)) ..
    ' tokens and promises no more: try later')
end
if is_other then
  for _, number in ipairs({amount, period, burst, initial, stepped, version}) do answer[#answer + 1] = number end
end
return answer
