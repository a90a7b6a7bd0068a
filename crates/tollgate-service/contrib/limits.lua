-- Asks the service about a request. If the service is away, the request passes.
local service = "http://127.0.0.1:8080/check"
-- Over the limit, or a request that the service cannot read: a client could spoil it to get around its limit.
local refusals = { [429] = true, [400] = true, [431] = true }

core.register_action("limits", { "http-req" }, function(txn)
    local headers, count = {}, 0
    for name, values in pairs(txn.http:req_get_headers()) do
        if name ~= "content-length" and name ~= "transfer-encoding" and name ~= "connection" then
            headers[name] = {}
            for _, value in pairs(values) do
                table.insert(headers[name], value)
                count = count + 1
            end
        end
    end
    headers["x-forwarded-for"] = { txn.f:src() }
    headers["x-forwarded-method"] = { txn.f:method() }
    headers["x-forwarded-uri"] = { txn.f:pathq() }
    -- Not twice: the request would be too long for the buffer.
    headers["x-forwarded-host"], headers["host"] = headers["host"], nil
    -- Longer than the longest `wait`, in milliseconds.
    local response = { status = 431, headers = {} }
    -- The service reads at most 100 fields, and some are added here.
    if count <= 80 then
        response = core.httpclient():get { url = service, headers = headers, timeout = 30000 }
    end
    if response and refusals[response.status] then
        local after = response.headers["retry-after"]
        txn:set_var("txn.refused", true)
        txn:set_var("txn.retry_after", after and after[0] or "1")
    end
end, 0)
