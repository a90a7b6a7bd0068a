-- Asks the service about a request. If the service is away, the request passes.
local service = "http://127.0.0.1:8080/check"

core.register_action("limits", { "http-req" }, function(txn)
    local headers = {}
    for name, values in pairs(txn.http:req_get_headers()) do
        if name ~= "content-length" and name ~= "transfer-encoding" and name ~= "connection" then
            headers[name] = {}
            for _, value in pairs(values) do
                table.insert(headers[name], value)
            end
        end
    end
    headers["x-forwarded-for"] = { txn.f:src() }
    headers["x-forwarded-method"] = { txn.f:method() }
    headers["x-forwarded-uri"] = { txn.f:pathq() }
    headers["x-forwarded-host"] = headers["host"]
    -- Longer than the longest `wait`, in milliseconds.
    local response = core.httpclient():get { url = service, headers = headers, timeout = 30000 }
    if response and response.status == 429 then
        local after = response.headers["retry-after"]
        txn:set_var("txn.refused", true)
        txn:set_var("txn.retry_after", after and after[0] or "1")
    end
end, 0)
