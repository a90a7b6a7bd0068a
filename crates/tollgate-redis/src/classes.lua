-- What the classes of all nodes of a store need: the script for reports. Run by src/classes.rs, beside the script for
-- requests. The same in Rust is src/distributed/shared_demand.rs of tollgate, equal to the integer.
--
-- KEYS[1] is a hash. Field 't' is when nodes were last forgotten, and the sum of the demand of each class. Each node has
-- one further field, of 32 hexadecimal digits: until when its report counts, and the report.
--   report: class parent weight heavy light millis, ... (several classes, with commas between them)
--   t: swept class parent weight heavy light millis rows, ... (rows: how many rows of reports it is the sum of)
-- Every number but the first two of a class is decimal, below 2^53. No token depends on any of this: what cannot be read
-- counts as missing.

local key, node, ttl, report = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local SWEEP, LONGEST, MOST_CLASSES, MOST_MILLIS = 250000, 60000000, 128, 2 ^ 40

local function rows(text)
  local list = {}
  for class, parent, weight, heavy, light, millis, count in
      string.gmatch(text, '(%x+) (%x+) (%d+) (%d+) (%d+) (%d+) ?(%d*)') do
    list[#list + 1] = {class = class, parent = parent, weight = weight, heavy = tonumber(heavy),
      light = tonumber(light), millis = tonumber(millis), rows = tonumber(count) or 1}
  end
  return list
end

local function text(row)
  return string.format('%s %s %s %.0f %.0f %.0f', row.class, row.parent, row.weight, row.heavy, row.light,
    row.millis)
end

local stored = redis.call('HMGET', key, 't', node)
local mine = stored[2] or ''
local swept, sums = string.match(stored[1] or '', '^(%d+) (.*)$')
swept = tonumber(swept) or 0
local classes, count = {}, 0
for _, sum in ipairs(rows(sums or '')) do
  classes[sum.class] = sum
  count = count + 1
end

-- Takes what a node has reported off the sums.
local function withdraw(reported)
  for _, row in ipairs(rows(reported)) do
    local sum = classes[row.class]
    if sum then
      sum.rows, sum.heavy, sum.light = sum.rows - 1, sum.heavy - row.heavy, sum.light - row.light
      sum.millis = sum.millis - row.millis
      if sum.rows <= 0 then
        classes[row.class] = nil
        count = count - 1
      end
    end
  end
end

if now >= swept + SWEEP or now < swept then
  local all = redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    if all[i] ~= 't' then
      local ends, reported = string.match(all[i + 1], '^(%d+) (.*)$')
      ends = tonumber(ends) or 0
      if ends <= now or ends > now + LONGEST then
        withdraw(reported or '')
        redis.call('HDEL', key, all[i])
        if all[i] == node then mine = '' end
      end
    end
  end
  swept = now
end
withdraw(string.match(mine, '^%d+ (.*)$') or '')

local kept = {}
for _, row in ipairs(rows(report)) do
  row.heavy, row.light = math.min(row.heavy, 1), math.min(row.light, 1)
  row.millis = math.min(row.millis, MOST_MILLIS)
  local sum = classes[row.class]
  if not sum and count < MOST_CLASSES then
    sum = {class = row.class, heavy = 0, light = 0, millis = 0, rows = 0}
    classes[row.class] = sum
    count = count + 1
  end
  if sum then
    sum.parent, sum.weight, sum.rows = row.parent, row.weight, sum.rows + 1
    sum.heavy, sum.light = sum.heavy + row.heavy, sum.light + row.light
    sum.millis = sum.millis + row.millis
    kept[#kept + 1] = text(row)
  end
end
if #kept > 0 then
  redis.call('HSET', key, node, string.format('%.0f ', now + math.min(ttl, LONGEST)) .. table.concat(kept, ','))
else
  redis.call('HDEL', key, node)
end

local answer, known = {}, {}
for _, sum in pairs(classes) do
  answer[#answer + 1] = text(sum)
  known[#known + 1] = text(sum) .. string.format(' %.0f', sum.rows)
end
redis.call('HSET', key, 't', string.format('%.0f ', swept) .. table.concat(known, ','))
redis.call('PEXPIRE', key, 120000)
return table.concat(answer, ',')
