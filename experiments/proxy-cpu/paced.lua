-- The requests of load.lua, with a random pause before each. The first argument is the mean time in milliseconds.
require("load")

local classes = init

init = function(args)
  mean = tonumber(args[1])
  classes(args)
end

delay = function()
  return math.random(0, math.floor(2 * mean))
end
