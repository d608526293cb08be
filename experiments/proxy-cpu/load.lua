-- Requests of three classes in turn, made once so that the load generator does little.
local requests = {}
local turn = 0

init = function()
  requests[1] = wrk.format("GET", "/page", { Host = "gold.test" })
  requests[2] = wrk.format("GET", "/silver/page", { Host = "site.test" })
  requests[3] = wrk.format("GET", "/page", { Host = "site.test", ["X-Tier"] = "bronze" })
end

request = function()
  turn = turn % #requests + 1
  return requests[turn]
end
