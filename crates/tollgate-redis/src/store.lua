-- One store: a token bucket that many nodes share. Run by src/lib.rs. The same algorithm in Rust, equal to the integer and
-- with the same names, is `SharedBucket` of tollgate (src/distributed/bucket.rs), which explains each rule.
--
-- KEYS[1] is a hash. Field 'q' is the quota, 's' the bucket, and each node has one further field, of 32 hexadecimal digits:
--   q: amount period burst initial kind [version], and of a calendar quota when its period begins and ends
--      (kind: 0 evenly, 1 in steps, more: by a calendar; no version is version 0)
--   s: level stamp part clock, and unless the others are as in a new bucket, swept epoch busy was placed fill held nodes
--      last_until last credit void, and from and to of each promise that was returned
--   node: number allowance until epoch granted promised queued_before part at last, and class first since until of each class
--      that lacks tokens
-- With classes there is field 'c': number parent weight lead seen of each class, class 0 first.
-- The quota is text. All other numbers are doubles of eight bytes: texts take longer to read and to write.
--
-- Every number is an integer below 2^53, where doubles are exact: tokens, or microseconds of the server's clock. A
-- missing key means that the bucket is full and no node holds anything.
--
-- ARGV is the quota, the numbers of the request, and the node (src/ask.rs). Without a node it is a claim of tokens at once,
-- and the second argument says how many.

local call, key, asked, node = redis.call, KEYS[1], ARGV[1], ARGV[3]
local unpacked, packed = struct.unpack, struct.pack
local EPOCH, IDLE, LONGEST, MAX_DEBT = 250000, 3600000000, 2 ^ 52, 2 ^ 52
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local stored

-- A claim at once, while no node is known and tokens come evenly. All that follows would do the same.
if not node then
  stored = call('HMGET', key, 's', 'q')
  local s, amount, period, burst, initial, versioned = stored[1], string.match(asked, '^(%d+) (%d+) (%d+) (%d+) 0( ?)')
  local level, stamp, part, clock = initial, now, 0, 0
  if s then
    if #s ~= 32 or stored[2] ~= asked then amount = nil else level, stamp, part, clock = unpacked('<dddd', s) end
  end
  if amount and now >= stamp and stamp % 1 == 0 then
    -- `+ 0` makes a number of a text in less time than `tonumber`.
    local want, elapsed = ARGV[2] + 0, now - stamp
    amount, period, burst, initial = amount + 0, period + 0, burst + 0, initial + 0
    local over = elapsed % period
    local sum = over * amount + part
    part = sum % period
    level, clock = level + (elapsed - over) / period * amount + (sum - part) / period, clock + elapsed
    if level >= burst then level, part = burst, 0 end
    over = EPOCH / 2 % period
    sum = over * amount + part
    local soon = (EPOCH / 2 - over) / period * amount + (sum - sum % period) / period
    local its_part = math.max(1, level + math.min(soon, MAX_DEBT))
    if level < want then want = 0 end
    level = level - want
    s = packed('<dddd', level, now, part, clock)
    if stored[1] then call('HSET', key, 's', s) else call('HSET', key, 's', s, 'q', asked) end
    local keep = math.min(math.ceil((burst - level) / amount) * period, LONGEST)
    if initial < burst then keep = math.min(keep + IDLE, LONGEST) end
    keep = math.ceil(keep / 1000) + 1
    if versioned == '' or keep > call('PTTL', key) then call('PEXPIRE', key, keep) end
    return packed('<ddddd', want, part, its_part, level, clock)
  end
  stored[3] = call('HGET', key, 'c')
else
  stored = call('HMGET', key, 's', 'q', 'c', node)
end

local min, max, floor, ceil = math.min, math.max, math.floor, math.ceil
local HORIZON, LONGEST_HORIZON, GRACE, LONGEST_GRACE = 250000, 1000000, 100000, 1250000
local SLEEP, LOOK, MOST_PLACES = 700000, 5000, 1000
local MOST_CLASSES, REMEMBERED, LEAST_REACH, MOST_LEAD, MAX_WEIGHT, MAX_DEPTH = 128, 2000000, 5000, 2 ^ 52, 1000000, 16
local MOST_RETURNED, LAST, SLACK = 8, 2 ^ 52, 100
local numbers = node and ARGV[2] or packed('<ddddd', 1, 1, 1, 2000000, tonumber(ARGV[2])) .. string.rep('\0', 96)
local number, leave, at_once, ttl, want, first, age, useful, rtt, back, unused, its_last, rest, ahead, banked,
  minimum, keeps = unpacked('<ddddddddddddddddd', numbers)
leave, at_once, ttl, age = leave == 1, at_once == 1, min(ttl, LONGEST), min(age, LONGEST)
-- The claims of each class. Without classes, all are those of class 0.
local claims, has_classes = {}, #numbers > 136
for i = 137, max(137, #numbers), 64 do
  local number, parent, weight, want, first, lack, age, useful = 0, 0, 1, want, first, want, age, useful
  if has_classes then number, parent, weight, want, first, lack, age, useful = unpacked('<dddddddd', numbers, i) end
  claims[#claims + 1] = {number = number, parent = parent, weight = max(1, min(weight, MAX_WEIGHT)), want = want, first = first,
    lack = lack, age = min(age, LONGEST), useful = useful, at = 1, reach = 0, older = 0, sooner = 0, within = 0, part = 1,
    is_ahead = false, given = 0}
end

-- The numbers of a node and its places: nothing if no node wrote them. Only the epoch and `since` may be negative.
local function node_of(row)
  if #row < 80 or (#row - 80) % 32 > 0 then return end
  local number, allowance, until_, epoch, granted, promised, queued_before, part, at, last = unpacked('<dddddddddd', row)
  if min(number, allowance, until_, granted, promised, queued_before, part, at, last) >= 0 then
    return number, allowance, until_, epoch, granted, promised, queued_before, part, at, last
  end
end

local function places_of(row)
  local all = {}
  for i = 81, #row, 32 do
    local class, first, since, its_end = unpacked('<dddd', row, i)
    all[#all + 1] = {class = class, first = first, since = since, until_ = its_end}
  end
  return all
end

local function text(...)
  return (string.gsub(string.rep('%.0f ', select('#', ...)), ' $', ''):format(...))
end

-- The amount, period, burst, initial tokens, kind and version of a quota's text, and when its period begins and ends.
local function terms(text)
  local a, p, b, i, k, more = string.match(text, '^([1-9]%d*) ([1-9]%d*) ([1-9]%d*) (%d+) (%d+)(.*)$')
  if not a then return end
  local v, f, t = 0, 0, 0
  if more ~= '' then
    v, f, t = string.match(more, '^ (%d+) ?(%d*) ?(%d*)$')
    if not v then return end
    v, f, t = v + 0, tonumber(f) or 0, tonumber(t) or 0
  end
  return a + 0, p + 0, b + 0, i + 0, k + 0, v, f, t
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

local quota, mine, known = asked, stored[4], nil
local amount, period, burst, initial, kind, version, begins, ends = terms(asked)
-- The kind that counts, the period that the clock must be in, and whether a new one brings tokens.
local counts, said_begins, said_ends, begins_anew = kind, begins, ends, false
local level, stamp, part, clock, swept, epoch, busy, was, placed, fill = initial, now, 0, 0, now, 0, 0, 0, 0, 0
local held, nodes, last_until, last, credit, void, returned = 0, 0, now, 0, 0, 0, {}
-- Whether the request has another quota than the store, and a newer one. Another quota that is not newer is older.
local is_other, is_newer = false, false
if stored[1] then
  local s, c = stored[1], stored[3]
  if #s ~= 32 and (#s < 128 or #s % 16 > 0) then return damaged('s') end
  if c and (#c == 0 or #c % 40 > 0 or unpacked('<d', c) ~= 0) then return damaged('c') end
  level, stamp, part, clock = unpacked('<dddd', s)
  if #s > 32 then
    swept, epoch, busy, was, placed, fill, held, nodes, last_until, last, credit, void = unpacked('<dddddddddddd', s, 33)
  end
  -- As a double, hardly any text is an instant.
  if stamp % 1 > 0 or stamp > 2 ^ 53
    or min(stamp, part, clock, swept, busy, was, placed, fill, held, nodes, last_until, last, credit, void) < 0
  then
    return damaged('s')
  end
  for i = 129, #s, 16 do
    local from, to = unpacked('<dd', s, i)
    returned[#returned + 1] = {from = from, to = to}
  end
  if stored[2] ~= asked then
    local has = {terms(stored[2] or '')}
    if not has[1] then return damaged('q') end
    is_other = has[1] ~= amount or has[2] ~= period or has[3] ~= burst or has[5] ~= kind
    is_newer = version > has[6]
    if is_other and version == has[6] then return redis.error_reply('TOLLGATEQUOTA ' .. stored[2]) end
    if not is_newer then counts = has[5] end
    if not is_newer and (kind ~= counts or ends == 0) then said_begins, said_ends = has[7], has[8] end
    quota = stored[2]
    if kind == has[5] and begins <= now and now < ends and now >= has[8] then
      begins_anew = begins > has[7]
      has[7], has[8] = max(has[7], begins), ends
      quota = text(unpack(has))
    end
    amount, period, burst, initial, kind, version, begins, ends = unpack(has)
  end
end
if mine then
  local its_number = node_of(mine)
  if not its_number then
    call('HDEL', key, node)
    return foreign(node, 1)
  end
  if number < its_number then
    return redis.error_reply('TOLLGATE request ' .. text(number) .. ' comes after ' .. text(its_number))
  end
end

if counts > 1 and not (said_begins <= now and now < said_ends) then
  return redis.error_reply('TOLLGATECLOCK ' .. text(now))
end

-- a / b, rounded down.
local function div(a, b) return (a - a % b) / b end

-- The time until the period of a calendar ends.
local function period_rest() return max(1, ends - stamp) end

-- The progress towards the next token, in parts of the period; of a stepped quota, the time since the period began. As if all
-- periods of a calendar were of one length.
local function phase()
  if kind > 1 then return period - min(period_rest(), period) end
  return kind == 1 and stamp % period or part
end

-- The most tokens that there may be beside the allowances.
local function most(held) return max(burst - held, min(fill, burst), 0) end

-- The number of the last promised token that was minted.
local function minted_number() return last + min(level, 0) end

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
  credit = max(0, min(credit, floor(burst / 2) - held))
  if level < 0 then return end
  level, credit = level + credit, 0
  if level >= most(held) then level, part = most(held), 0 end
end

-- How many tokens are minted in the next `micros` microseconds, up to 2^52.
local function minted_within(micros)
  if kind > 0 then return min(div(phase() + micros, period) * amount, MAX_DEBT) end
  return min(div(micros, period) * amount + div(micros % period * amount + part, period), MAX_DEBT)
end

-- In how many microseconds so many tokens are minted, up to 2^52; 0 if there are that many already.
local function time_to(tokens)
  if tokens <= 0 then return 0 end
  if kind > 1 then return period_rest() end
  local over = tokens % amount
  local micros = (tokens - over) / amount * period
  if kind == 1 then
    micros = micros + (over > 0 and period or 0) - phase()
  else
    local left = over * period - part
    micros = micros - div(-left, amount)
  end
  return max(0, min(micros, LONGEST))
end

-- Mints up to `time`. The fraction of a token is carried, unless the bucket was already full. If the clock has stepped back,
-- time continues from there: the tokens since the last call are lost.
local function mint(time)
  local minted, left = 0, part
  if kind == 1 then
    minted = max(0, div(time, period) - div(stamp, period)) * amount
  elseif kind == 0 and time > stamp then
    local over = (time - stamp) % period
    local sum = over * amount + part
    left = sum % period
    minted = (time - stamp - over) / period * amount + (sum - left) / period
    part = left
  end
  clock = clock + max(0, time - stamp)
  if time < stamp then void, returned = last, {} end
  stamp = time
  local full = most(held)
  if kind == 0 and (level + minted > full or level + minted == full and left >= amount) then part = 0 end
  if minted > 0 then level = max(level, min(full, level + minted)) end
  for i = 1, #returned do
    local run = returned[i]
    local from = max(run.from, min(run.to, minted_number()))
    credit, run.from = credit + from - run.from, from
  end
  if returned[1] then compact() end
  if credit > 0 then cut(held) end
  -- They begin anew if no node knows them, or they become too large.
  if last > LAST or nodes == 0 and level >= 0 then last, void, returned = -min(level, 0), 0, {} end
end

-- Forgets the nodes that have reached the end of their time to live. Until then a node may use what it keeps, so the
-- bucket has space for these tokens only from then on: it mints up to the last of these ends first. If the clock has
-- stepped back, the ends step back with it: no node is forgotten sooner or later for that.
local is_due = begins_anew or nodes == 0 or now >= swept + ceil(ttl / 4) or now < swept
local all = nodes > 0 and (is_due or placed > 0 or stored[3] or has_classes) and call('HGETALL', key) or {}
local gone = {}
if is_due then
  local foreign_count, foreign_name = 0, nil
  local keep, count, last_end, taken = 0, 0, 0, 0
  local step = now < swept and stamp - now or 0
  last_until = now
  for i = 1, #all, 2 do
    local name = all[i]
    local row, number, holds, its_end = all[i + 1], nil, nil, nil
    if #name == 32 then number, holds, its_end = node_of(row) end
    if #name > 1 and not number then
      call('HDEL', key, name)
      foreign_count, foreign_name = foreign_count + 1, foreign_name or name
    elseif number then
      its_end = its_end - step
      if its_end + step > begins then taken = taken + holds end
      if its_end <= now then
        gone[name], last_end = true, max(last_end, its_end)
      else
        keep, count, last_until = keep + holds, count + 1, max(last_until, its_end)
        if step > 0 or begins_anew then
          local granted = begins_anew and packed('<d', 0) or string.sub(row, 33, 40)
          row = string.sub(row, 1, 16) .. packed('<d', its_end) .. string.sub(row, 25, 32) .. granted .. string.sub(row, 41)
          call('HSET', key, name, row)
          all[i + 1] = row
          if name == node then mine = row end
        end
      end
    end
  end
  if foreign_name then return foreign(foreign_name, foreign_count) end
  for name in pairs(gone) do call('HDEL', key, name) end
  if gone[node] then mine = false end
  -- A period begins. A node may use its allowance until its lease ends, and gets nothing more by a repeat of its last answer.
  if begins_anew then level = max(0, burst - taken) end
  if last_end > stamp then mint(last_end) end
  held, nodes, swept = keep, count, now
end
mint(now)

-- A dividend / divisor, rounded up, and by a little more if the doubles may have been rounded down.
local function rounded_up(dividend, divisor)
  local quotient = dividend / divisor
  if dividend > 2 ^ 53 then return ceil(quotient * (1 + 1 / 2 ^ 50)) end
  return ceil(quotient)
end

-- A newer quota replaces that of the store. Tokens stay, as far as the new burst allows. Promised instants stay too: the
-- debt becomes as many tokens as the new quota mints in the time in which the old one would have minted the debt. So the
-- first new promise comes after the last old one.
local refused = false
if is_newer then
  local to_amount, to_period, to_burst, to_initial, to_kind, to_version, to_begins, to_ends = terms(asked)
  local owed, to_part = level, part
  if to_amount ~= amount or to_period ~= period or to_kind ~= kind then
    if level < 0 then
      local rest = kind > 0 and ceil(-level / amount) * period - now % period
        or rounded_up(-level * period - part, amount)
      to_part = 0
      if to_kind > 1 then
        -- What was promised comes, and nothing is promised after it.
        owed = 0
      elseif to_kind == 1 then
        owed = -floor((rest + now % to_period) / to_period) * to_amount
      else
        owed = -rounded_up(rest * to_amount, to_period)
        -- The part of a token by which the debt was rounded up, if that is exact.
        if -owed * to_period <= 2 ^ 53 then to_part = -owed * to_period - rest * to_amount end
      end
    elseif kind > 0 or to_kind > 0 then
      to_part = 0
    else
      -- Two parts less than the doubles say, in case they were rounded up.
      to_part = max(0, floor(part * (to_period / period)) - 2)
    end
    refused = owed < -MAX_DEBT
    if not refused then
      -- A promise that is repeated would be read by the new rate.
      all = call('HGETALL', key)
      for i = 1, #all, 2 do
        if #all[i] == 32 then
          all[i + 1] = string.sub(all[i + 1], 1, 40) .. packed('<d', 0) .. string.sub(all[i + 1], 49)
          call('HSET', key, all[i], all[i + 1])
          if all[i] == node and mine then mine = all[i + 1] end
        end
      end
    end
  end
  if not refused then
    if level < 0 and (to_amount ~= amount or to_period ~= period or to_kind ~= kind) then
      last, void, returned = last - owed, last, {}
    end
    -- A period that has begun does not begin again.
    if to_kind ~= kind then begins, ends = to_begins, to_ends end
    quota, level, part, is_other = asked, owed, to_part, false
    amount, period, burst, initial, kind, version = to_amount, to_period, to_burst, to_initial, to_kind, to_version
    if kind > 1 then quota = text(amount, period, burst, initial, kind, version, begins, ends) end
    cut(held)
  end
end

local before, had, seen, granted, promised, queued_before, at = 0, 0, -1, 0, 0, 0, clock
local progress, promised_last, until_, own = 0, 0, now + ttl, {}
if mine then
  local _
  before, had, _, seen, granted, promised, queued_before, progress, at, promised_last = node_of(mine)
  own = places_of(mine)
end
local is_repeat = mine and number == before
local others = held - had
local reach = max(HORIZON, min(LONGEST_HORIZON, floor(rtt * 5 / 2)))
local recent = 2 * reach
-- Nothing is promised for the next period of a calendar: no debt is there when it begins.
if kind > 1 then reach = 0 end

local row, answer, allowance
if not refused then
  -- The classes of all nodes: those without a request for long are forgotten.
  local classes = {}
  for i = 1, #(stored[3] or ''), 40 do
    local number, parent, weight, lead, seen = unpacked('<ddddd', stored[3], i)
    classes[#classes + 1] = {number = number, parent = parent, weight = weight, lead = lead, seen = seen}
  end
  -- The place of a class in the list. A class that is not known has that of class 0.
  local function class_at(number)
    for index, class in ipairs(classes) do
      if class.number == number then return index end
    end
    return 1
  end
  local function lead_of(number) return classes[1] and classes[class_at(number)].lead or 0 end
  local weights
  if stored[3] or has_classes then
    -- Of each class, the weights of the classes in it of which some are `counted`, or have such classes in them, and 1 if it is
    -- itself.
    weights = function(counted)
      local sums = {}
      for index = 1, #classes do sums[index] = 0 end
      for own = 1, #classes do
        if counted(classes[own], own) then
          local index, is_new = own, sums[own] == 0
          sums[own] = sums[own] + 1
          while index > 1 and is_new do
            local class = classes[index]
            index = class_at(class.parent)
            is_new = sums[index] == 0
            sums[index] = sums[index] + class.weight
          end
        end
      end
      return sums
    end
    if classes[1] then
      local sums, known = weights(function(class) return clock - class.seen < REMEMBERED end), {}
      for index, class in ipairs(classes) do
        if index == 1 or sums[index] > 0 then known[#known + 1] = class end
      end
      classes = (known[2] or has_classes) and known or {}
    elseif has_classes then
      classes[1] = {number = 0, parent = 0, weight = 1, lead = 0, seen = -REMEMBERED}
    end
    -- A class in another class begins with the largest lead of its siblings there: a new name is no way around what they had.
    for _, row in ipairs(has_classes and claims or {}) do
      local index = class_at(row.number)
      if classes[index].number ~= row.number then
        local lead, oldest = 0, 2
        for other, class in ipairs(classes) do
          if row.parent ~= 0 and class.parent == row.parent then lead = max(lead, class.lead) end
          if other > 1 and class.seen < classes[oldest].seen then oldest = other end
        end
        if #classes == MOST_CLASSES then table.remove(classes, oldest) end
        index = #classes + 1
        classes[index] = {number = row.number, lead = lead, seen = -REMEMBERED}
      end
      local class = classes[index]
      class.parent, class.weight = row.parent, row.weight
      if row.lack > 0 then class.seen = max(class.seen, clock) end
    end
    if classes[1] and not has_classes and want > 0 then classes[1].seen = max(classes[1].seen, clock) end
  end

  -- The places of other nodes: the lead of the class, since when, and the tokens. And on how many nodes each class lacks
  -- tokens, and on how many it will if the request is granted.
  local list, all_first, lacking = {}, 0, {}
  for index = 1, #classes do lacking[index] = 0 end
  local function lacks(class) lacking[class_at(class)] = lacking[class_at(class)] + 1 end
  for i = 1, (placed > 0 or classes[1]) and #all or 0, 2 do
    if #all[i] == 32 and all[i] ~= node and not gone[all[i]] then
      local asked_at = unpacked('<d', all[i + 1], 65)
      for _, place in ipairs(places_of(all[i + 1])) do
        -- A place further ahead than a node may come is void: the clock was set back.
        local latest = now + max(SLEEP, floor((now - place.since) / 2)) + LONGEST_GRACE
        local is_kept = place.first > 0 and now <= place.until_ and place.until_ <= latest
        if classes[1] and (is_kept or clock - asked_at < recent) then lacks(place.class) end
        if is_kept and placed > 0 then
          local tokens = min(place.first, burst)
          list[#list + 1] = {class = place.class, lead = lead_of(place.class), since = place.since, first = tokens}
          all_first = all_first + tokens
        end
      end
    end
  end
  for i = 1, #claims do claims[i].first, claims[i].reach = min(claims[i].first, burst), reach end
  local now_weights, live_weights, share_of, least_lead
  if classes[1] then
    local stay, away = {}, {}
    for index = 1, #classes do stay[index] = lacking[index] end
    for _, row in ipairs(claims) do
      row.at = class_at(row.number)
      if row.lack > 0 then lacks(row.number) end
      if row.lack > row.want then stay[row.at] = stay[row.at] + 1 end
    end
    now_weights = weights(function(_, index) return lacking[index] > 0 end)
    live_weights = weights(function(class) return clock - class.seen < recent end)
    -- While another class was there a moment ago and will lack none, it may be back at once.
    for index, class in ipairs(classes) do
      if clock - class.seen < recent and stay[index] == 0 then away[#away + 1] = index end
    end
    for _, row in ipairs(claims) do
      if away[2] or away[1] and away[1] ~= row.at then row.reach = min(row.reach, max(2 * rtt, LEAST_REACH)) end
    end
    -- What is due to a class of all tokens, by these weights.
    share_of = function(sums, index)
      local share = 1 / max(1, sums[index])
      for _ = 1, MAX_DEPTH do
        if index == 1 then break end
        local weight = classes[index].weight
        index = class_at(classes[index].parent)
        share = share * weight / max(1, sums[index])
      end
      return min(share, 1)
    end
    -- The smallest lead of a class that lacks tokens.
    least_lead = function()
      local least
      for index, class in ipairs(classes) do
        if lacking[index] > 0 then least = min(least or class.lead, class.lead) end
      end
      return least or 0
    end
  end

  -- The order of places: by the lead of the class, by age, and of one age the largest first.
  local function is_before(place, lead, other, its_lead)
    if not other or lead ~= its_lead then return not other or lead < its_lead end
    return place.since < other.since or place.since == other.since and place.first > other.first
  end

  -- Records the tokens of all places, and up to how many tokens the bucket fills: those of the first place in order.
  local function note_places(own)
    local best, its_lead
    placed, fill = all_first, 0
    for index = 1, #list + #own do
      local place = list[index] or own[index - #list]
      local lead = place.lead or lead_of(place.class)
      if index > #list then placed = placed + place.first end
      if place.first > 0 and is_before(place, lead, best, its_lead) then best, its_lead = place, lead end
    end
    if best then fill = best.first end
  end
  -- What was saved up for a node that has not come, or whose claim has left, is not there any more.
  local kept = {}
  for i = 1, #own do
    local place = own[i]
    for _, row in ipairs(claims) do
      if row.number == place.class then
        local is_kept = place.first <= row.first or row.want == 0 and row.lack > 0
        kept[#kept + 1] = is_kept and place or {class = place.class, first = row.first, since = place.since}
        break
      end
    end
  end
  note_places(kept)
  cut(held)
  if mine and not is_repeat then
    -- Of a calendar quota no more than the node got in this period, or might keep when that began.
    if kind > 1 then back = min(back, had + granted) end
    -- Returned promises: the last ones are not promised any more; those that have later ones behind them can be promised anew.
    local minted = minted_number()
    local is_on_time = time_to(its_last - minted) <= rest + SLACK
    if its_last <= last and its_last - unused >= void and is_on_time then
      local run = {from = max(its_last - unused, minted), to = max(its_last, minted)}
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
  local there = max(level, 0) + credit
  for i = 1, #claims do
    local row = claims[i]
    -- The tokens of the places before it, and how many are surely given before it gets some: the first place of another
    -- class gets its tokens, and the others may come behind it then.
    local lead, since, own_class, others, best = lead_of(row.number), now - row.age, 0, 0, nil
    for other = 1, #list do
      local place = list[other]
      if place.lead < lead or place.lead == lead and place.since < since then
        if place.class == row.number then
          own_class = own_class + place.first
        else
          others = others + place.first
          if is_before(place, place.lead, best, best and best.lead) then best = place end
        end
      end
    end
    row.older, row.sooner = own_class + others, own_class + (best and best.first or 0)
    row.within = at_once and 0 or minted_within(min(row.reach, row.useful))
    if classes[1] then
      -- So small a part that classes take turns several times within the horizon.
      local tokens, nodes = there + minted_within(div(row.reach * 2, 5)), max(1, lacking[row.at])
      local part = floor(tokens * share_of(now_weights, row.at) / nodes)
      local ahead = max(0, lead - least_lead())
      ahead = floor(ahead * share_of(live_weights, row.at) / 1000)
      row.part = max(1, part)
      row.is_ahead = ahead > max(part, row.first)
    end
  end
  if is_repeat then
    -- The answer was lost: repeat it.
    allowance = had
    local rest = granted + promised
    for _, row in ipairs(claims) do
      row.given = min(row.want, rest)
      rest = rest - row.given
    end
  else
    if not mine then nodes, keeps = nodes + 1, 0 end
    -- The node has chosen these numbers by an older quota. It asks anew when it knows the newer one.
    local is_outdated = not at_once and is_other
    -- `want`, or a multiple of `first`, or nothing for each class, of tokens from one source: those that are there in
    -- spite of a debt, returned ones that come after all that the node still has, or those that are not promised yet.
    local minted = minted_number()
    local function in_time(run, within) return max(0, min(run.to, minted + within) - run.from) end
    local function give(there, run)
      local sum = 0
      for i = 1, #claims do
        local row = claims[i]
        local within, all = row.within, level + row.within
        local can = run and in_time(run, within) or there or all
        if level < 0 then
          all = credit + max(0, all)
          for other = 1, #returned do all = all + in_time(returned[other], within) end
        end
        can = min(can, all - (at_once and all_first or row.older)) - sum
        row.given = 0
        if not is_outdated and not row.is_ahead then
          if row.want <= can then
            row.given = row.want
          elseif can > 0 and not at_once then
            row.given = can - can % max(1, row.first)
          end
        end
        sum = sum + row.given
      end
      return sum
    end
    local from_there, again = level < 0 and give(credit) or 0, nil
    local given = from_there
    for i = 1, #returned do
      local run = returned[i]
      if given == 0 and run.from >= its_last - unused then
        given = give(nil, run)
        again = given > 0 and run or nil
      end
    end
    if given == 0 then given = give() end
    local is_new = from_there == 0 and not again
    -- The node's allowance: a fair part of half of the burst, or the cost that a caller was denied.
    local half = floor(burst / 2)
    local fair = max(1, floor(burst / (2 * (nodes + 1))))
    allowance = max(keeps, min(max(fair, minimum), half - others))
    -- Callers to come get tokens that are there and for which no claim waits; beside claims that wait, and for one that was
    -- denied, those of the horizon.
    local spare = level + ((minimum > 0 or given > 0) and minted_within(reach) or 0)
    local limit = (is_outdated or not is_new) and 0 or spare - given - all_first
    local more = max(0, min(ahead, allowance - banked, limit))
    local tokens = given + more
    allowance = max(keeps, min(allowance, banked + more))
    local owed = max(0, -level)
    granted, queued_before = max(0, min(level, tokens)), owed
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
    local this = floor(now / EPOCH)
    local fills = min(ceil(owed / amount) * period, LONGEST)
    local passed, length = this - epoch, 1 + floor((fills + EPOCH / 2) / EPOCH)
    if passed < 0 or passed >= length then
      was = passed >= 0 and passed < 2 * length and busy or 0
      busy, epoch = 0, this
    end
    if want > 0 and not at_once and seen ~= epoch then busy, seen = busy + 1, epoch end
    -- The classes were given tokens: the virtual time goes on to the smallest tag of those that lack some.
    if classes[1] and given > 0 then
      for _, row in ipairs(claims) do
        local class = classes[row.at]
        class.lead = min(class.lead + floor(row.given * 1000 / share_of(live_weights, row.at)), MOST_LEAD)
      end
      local least = least_lead()
      for _, class in ipairs(classes) do class.lead = max(0, class.lead - least) end
    end
  end
  -- A class that gets nothing, and whose claims can still be served in time, gets a place.
  local grace = max(GRACE, min(LONGEST_GRACE, floor(rtt * 5 / 4)))
  local in_vain, wait, places, of_classes = granted + promised == 0, nil, is_repeat and own or {}, ''
  for i = 1, #claims do
    local row = claims[i]
    local is_sent_away, its_wait, sleep = row.given == 0 and row.first > 0 and (in_vain or has_classes), 0, 0
    if is_sent_away then
      -- A class that is ahead of others looks again soon, but not before the one of its node that is furthest behind.
      local least_wait, before, least = row.is_ahead and row.reach + LOOK or 0, 0, lead_of(row.number)
      if row.is_ahead then
        for _, other in ipairs(claims) do
          local first, lead = other.want > 0 and other.first or 0, lead_of(other.number)
          for index = #own, 1, -1 do
            if other.want <= 0 and own[index].class == other.number then first = own[index].first end
          end
          local is_less = lead < least or before > 0 and lead == least and first < before
          if first > 0 and other.lack > other.given and is_less then before, least = first, lead end
        end
      end
      its_wait = max(least_wait, time_to(row.first + max(row.older, before) - level))
      -- A node that does not know of classes computes its sleep from the wait.
      local soonest = has_classes and max(least_wait, time_to(row.first + max(row.sooner, before) - level)) or its_wait
      sleep = max(0, min(soonest - row.reach, max(SLEEP, floor(row.age / 2))))
    end
    if has_classes then of_classes = of_classes .. packed('<dddd', row.given, its_wait, sleep, row.part) end
    if in_vain and its_wait > 0 then wait = min(wait or its_wait, its_wait) end
    if not is_repeat and not at_once and row.lack > row.given then
      local place = {class = row.number, first = 0, since = 0, until_ = 0}
      if row.want == 0 then
        for index = #own, 1, -1 do
          if own[index].class == row.number then place = own[index] end
        end
      elseif is_sent_away and its_wait <= row.useful and #list + #places < MOST_PLACES then
        place.first, place.since, place.until_ = row.first, now - row.age, now + sleep + grace
        if classes[1] then classes[row.at].seen = max(classes[row.at].seen, clock + sleep) end
      end
      if place.first > 0 or classes[1] then places[#places + 1] = place end
    end
  end
  for i = 1, #places do until_ = max(until_, places[i].until_) end
  note_places(places)

  if leave then
    if mine then call('HDEL', key, node) end
    held, nodes, allowance = others, nodes - 1, 0
  else
    held, last_until = others + allowance, max(last_until, until_)
    row = packed('<dddddddddd', number, allowance, until_, seen, granted, promised, queued_before, progress, at, promised_last)
    for i = 1, #places do
      local place = places[i]
      row = row .. packed('<dddd', place.class, place.first, place.since, place.until_)
    end
  end
  local parts = max(1, busy, was)
  -- One part more is left for a node that joins.
  local its_part = max(1, div(there + minted_within(div(reach * parts, parts + 1)), parts))
  answer = packed('<ddddddddddddd', before, clock - at, granted, promised, queued_before, progress, wait or 0, its_part,
    allowance, nodes, max(0, level) + credit, promised_last, clock) .. of_classes
  if classes[1] then
    local rows = {}
    for index, class in ipairs(classes) do
      rows[index] = packed('<ddddd', class.number, class.parent, class.weight, class.lead, class.seen)
    end
    call('HSET', key, 'c', table.concat(rows))
  elseif stored[3] then
    call('HDEL', key, 'c')
  end
end

local bucket = packed('<dddd', level, stamp, part, clock)
if nodes > 0 or level < 0 or busy > 0 or was > 0 or has_classes or stored[3] then
  bucket = bucket .. packed('<dddddddddddd', swept, epoch, busy, was, placed, fill, held, nodes, last_until, last, credit, void)
  for i = 1, #returned do bucket = bucket .. packed('<dd', returned[i].from, returned[i].to) end
end
if stored[2] ~= quota then call('HSET', key, 'q', quota) end
if row then call('HSET', key, 's', bucket, node, row) else call('HSET', key, 's', bucket) end

-- A bucket that is full, with no allowances left, equals a missing key: it expires at that time. A bucket that would
-- not begin full is kept for one hour longer. The node whose time to live ends last need not be the one that asks. A
-- changed quota never makes the bucket forgotten sooner: a node with the old quota would get a new bucket.
local function fills(tokens)
  if kind > 1 then return tokens > 0 and period_rest() or 0 end
  return min(ceil(tokens / amount) * period, LONGEST)
end
local idle = (initial < burst or kind > 1) and IDLE or 0
local keep = max(fills(max(0, burst - level)) + idle, last_until - now + fills(min(held, burst)))
keep = ceil(min(keep, LONGEST) / 1000) + 1
if version == 0 or keep > call('PTTL', key) then call('PEXPIRE', key, keep) end

if refused then
  return redis.error_reply('TOLLGATE the store owes ' .. text(max(0, -level)) ..
    ' tokens and promises no more: try later')
end
if is_other then
  answer = answer .. packed('<dddddd', amount, period, burst, initial, kind, version)
  if kind > 1 then answer = answer .. packed('<dd', begins, ends) end
end
return answer
