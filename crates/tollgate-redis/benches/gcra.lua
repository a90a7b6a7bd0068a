-- GCRA (the generic cell rate algorithm). The value of the key is the instant at which the bucket is full again, in microseconds.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local interval, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local full = math.max(now, tonumber(redis.call('GET', KEYS[1]) or now)) + interval
if full - now > interval * burst then return 0 end
redis.call('SET', KEYS[1], string.format('%.0f', full), 'PX', math.ceil((full - now) / 1000))
return 1
