-- A connection for each request.
request = function()
  return wrk.format("GET", "/page", { Host = "gold.test", Connection = "close" })
end
