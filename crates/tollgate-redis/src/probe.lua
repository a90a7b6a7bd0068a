-- Runs each command that the scripts run, on a key beside that of the store, and returns the names of those that fail and
-- the replies.

local key, failed = KEYS[1], {}

local function try(name, ...)
  local reply = redis.pcall(name, ...)
  if type(reply) == 'table' and reply.err then
    failed[#failed + 1], failed[#failed + 2] = name, reply.err
  end
end

try('time')
try('hset', key, 's', '0')
try('hget', key, 's')
try('hmget', key, 's')
try('hgetall', key)
try('pexpire', key, '1000')
try('pttl', key)
try('hdel', key, 's')
return failed
