-- Responses of 10 MB.
request = function()
  return wrk.format("GET", "/large", { Host = "gold.test" })
end
