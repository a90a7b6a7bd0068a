-- A claim at once of a caller that the store does not remember, as keyed limiters send it: the head of store.lua, which
-- goes on below if other nodes are known, or anything is unusual.
--
-- While no node is known, the hash has a single field, 's', in a form of its own: level seconds micros part quota. It says
-- the same as the fields in store.lua, of which the others would be 0. The two instants are the two numbers of TIME: large
-- numbers are slow to format. All other numbers are below 10^14, so `..` does not round them.
--
-- ARGV: quota want level expiry amount period burst extra. The level and the expiry (in milliseconds) are those after the
-- claim if there was no record, and `extra` is what an expiry has on top of the time until the bucket is full. The
-- answer is 1 if there was no record, the new record if the tokens are granted, and else the level and the part.
local args = ARGV
if not ARGV[9] then
  local call, key, quota = redis.call, KEYS[1], ARGV[1]
  local time = call('TIME')
  local sec, usec = time[1], time[2]
  local stored = call('HGET', key, 's')
  if not stored then
    call('HSET', key, 's', ARGV[3] .. ' ' .. sec .. ' ' .. usec .. ' 0 ' .. quota)
    call('PEXPIRE', key, ARGV[4])
    return 1
  end
  -- The form of store.lua has too few numbers to end with a quota.
  local level, since_sec, since_usec, carried, has = string.match(stored, '^(%d+) (%d+) (%d+) (%d+) (.*)$')
  local elapsed = has == quota and (sec - since_sec) * 1000000 + usec - since_usec or -1
  if elapsed >= 0 then
    -- As `mint` does below, with no allowances.
    local amount, period, burst, want = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[2])
    local over = elapsed % period
    local sum = over * amount + carried
    local part = sum % period
    level = level + (elapsed - over) / period * amount + (sum - part) / period
    if level > burst or level == burst and part >= amount then level, part = burst, 0 end
    -- `math.floor` makes integers of them where Lua has such a type.
    local is_granted = level >= want
    level, part = math.floor(is_granted and level - want or level), math.floor(part)
    local record = level .. ' ' .. sec .. ' ' .. usec .. ' ' .. part .. ' ' .. quota
    call('HSET', key, 's', record)
    call('PEXPIRE', key, math.ceil(math.ceil((burst - level) / amount) * period / 1000) + ARGV[8])
    return is_granted and record or {level, part}
  end
  args = {'', '1', '1', quota, '2000000', ARGV[2], '0', '0', '0', '0', '0', '0', '1'}
end

