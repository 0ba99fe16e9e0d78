-- Builds the libraries that functions see. The chunk is called with a table of functions of the host and with the meter of the
-- call; it returns the libraries and a function that gives keys of sets and maps that are tables an order.
local host = ...
local rawnext, type, error, select, tostring, tonumber = next, type, error, select, tostring, tonumber
local pcall, assert, ipairs, rawequal, rawlen = pcall, assert, ipairs, rawequal, rawlen
local setmetatable, getmetatable = setmetatable, getmetatable
local string, table, math, utf8 = string, table, math, utf8
local byte, sub, rep, format, concat, unpack, pack =
  string.byte, string.sub, string.rep, string.format, table.concat, table.unpack, table.pack
local mathtype, tointeger = math.type, math.tointeger
local yield = coroutine.yield
local search, plainfind = host.search, host.plainfind

-- Strings from this length on make the call pause after they were copied.
local LONG = 16384

-- Elements of a list that take as long as a long string.
local MANY = 512
-- Bytes of the arguments of one 'format'.
local FORMATTED_MAX = 4194304

-- Has the call pause before work over so many bytes: a library call is one instruction, of which a hundred run between two looks at the
-- clock.
local function pause_for(bytes)
  if bytes > LONG then yield() end
end

-- The bytes of the arguments that are strings.
local function bytes_of(...)
  local arguments, bytes = pack(...), 0
  for at = 1, arguments.n do
    local value = arguments[at]
    if type(value) == "string" then bytes = bytes + #value end
  end
  return bytes
end

-- The results of a protected call; its error is one of the function that called the library.
local function unprotected(is_done, ...)
  if is_done then return ... end
  error((...), 2)
end

-- A library function that pauses before it looks at long strings.
local function paced(original)
  return function(...)
    pause_for(bytes_of(...))
    return unprotected(pcall(original, ...))
  end
end

local function checktable(value, at, name)
  if type(value) ~= "table" then
    error("bad argument #" .. at .. " to '" .. name .. "' (table expected, got " .. type(value) .. ")", 3)
  end
end

local function checkstring(value, at, name)
  local kind = type(value)
  if kind == "string" then return value end
  if kind == "number" then return tostring(value) end
  error("bad argument #" .. at .. " to '" .. name .. "' (string expected, got " .. kind .. ")", 3)
end

local function checkinteger(value, at, name, default)
  if value == nil and default ~= nil then return default end
  if type(value) == "string" then pause_for(#value) end
  local number = tonumber(value)
  local whole = number and tointeger(number)
  if not whole then
    error("bad argument #" .. at .. " to '" .. name .. "' (integer expected, got " .. type(value) .. ")", 3)
  end
  return whole
end

-- The order of keys.
local ordinals = setmetatable({}, { __mode = "k" })
local ordinal = 0
local function number_key(key)
  ordinal = ordinal + 1
  ordinals[key] = ordinal
end

local ranks = { number = 1, string = 2, boolean = 3, userdata = 4, table = 5, ["function"] = 5 }
local function less(a, b)
  local ta, tb = type(a), type(b)
  if ta ~= tb then return ranks[ta] < ranks[tb] end
  if ta == "boolean" then return b and not a end
  if ranks[ta] == 5 then
    local oa, ob = ordinals[a], ordinals[b]
    if not (oa and ob) then error("keys that are tables or functions have no order", 0) end
    return oa < ob
  end
  return a < b
end

-- Sorts list[1..n] by merging, so that an order that contradicts itself does no harm.
local function sort(list, n, before)
  local from, to, width = list, {}, 1
  while width < n do
    for low = 1, n, width * 2 do
      local mid, high = low + width, low + width * 2
      if mid > n + 1 then mid = n + 1 end
      if high > n + 1 then high = n + 1 end
      local left, right = low, mid
      for at = low, high - 1 do
        if left < mid and (right >= high or not before(from[right], from[left])) then
          to[at] = from[left]
          left = left + 1
        else
          to[at] = from[right]
          right = right + 1
        end
      end
    end
    from, to = to, from
    width = width * 2
  end
  if from ~= list then
    for at = 1, n do list[at] = from[at] end
  end
end

local function keys_of(t)
  local keys, n = {}, 0
  for key in rawnext, t do
    n = n + 1
    keys[n] = key
  end
  sort(keys, n, less)
  return keys
end

local base = {
  assert = assert, error = error, pcall = pcall, select = select, tonumber = paced(tonumber), type = type,
  ipairs = ipairs, rawequal = rawequal, rawlen = rawlen, _VERSION = _VERSION,
}

function base.pairs(t)
  checktable(t, 1, "pairs")
  local keys, at = keys_of(t), 0
  return function()
    while true do
      at = at + 1
      local key = keys[at]
      if key == nil then return nil end
      local value = t[key]
      if value ~= nil then return key, value end
    end
  end, t, nil
end

function base.next(t, key)
  checktable(t, 1, "next")
  local found
  for candidate in rawnext, t do
    if (key == nil or less(key, candidate)) and (found == nil or less(candidate, found)) then found = candidate end
  end
  if found == nil then return nil end
  return found, t[found]
end

local function totext(value)
  local kind = type(value)
  if kind == "table" or kind == "function" then return kind end
  return tostring(value)
end
base.tostring = totext

local text = {
  byte = string.byte, char = string.char, len = string.len, packsize = paced(string.packsize),
  unpack = paced(string.unpack),
}

local packed = paced(string.pack)
function text.pack(...)
  local result = packed(...)
  pause_for(#result)
  return result
end

function text.sub(s, first, last)
  local part = sub(s, first, last)
  if #part > LONG then yield() end
  return part
end

for _, name in ipairs({ "lower", "upper", "reverse" }) do
  local original = string[name]
  text[name] = function(s)
    local result = original(s)
    if #result > LONG then yield() end
    return result
  end
end

function text.rep(s, n, separator)
  s = checkstring(s, 1, "rep")
  separator = separator == nil and "" or checkstring(separator, 3, "rep")
  if #s + #separator == 0 then return "" end
  local result = rep(s, n, separator)
  if #result > LONG then yield() end
  return result
end

function text.format(pattern, ...)
  pattern = checkstring(pattern, 1, "format")
  if #pattern > 1024 then error("the format is longer than 1024 bytes", 2) end
  local at = 1
  while true do
    local percent = plainfind(pattern, "%", at)
    if not percent then break end
    at = percent + 1
    while at <= #pattern and plainfind("-+ #0123456789.", sub(pattern, at, at), 1) do at = at + 1 end
    if sub(pattern, at, at) == "p" then error("invalid conversion '%p' to 'format'", 2) end
    at = at + 1
  end
  local arguments = pack(...)
  local bytes = bytes_of(...)
  if bytes > FORMATTED_MAX then error("the arguments of 'format' are longer than " .. FORMATTED_MAX .. " bytes", 2) end
  pause_for(bytes)
  for i = 1, arguments.n do
    local kind = type(arguments[i])
    if kind == "table" or kind == "function" or kind == "userdata" then arguments[i] = totext(arguments[i]) end
  end
  local result = format(pattern, unpack(arguments, 1, arguments.n))
  if #result > LONG then yield() end
  return result
end

local function start_of(init, length)
  if init > 0 then return init end
  if init == 0 then return 1 end
  return init < -length and 1 or length + init + 1
end

-- The first match from `at` on that does not end at `refused`: a table of first, last and captures; none without one.
local function match_from(s, pattern, at, refused)
  while true do
    local found = pack(search(s, pattern, at, refused))
    if found[1] then yield() end
    if found[2] == 1 then return found end
    if found[2] == 0 then return nil end
    at = found[3]
  end
end

local function find(s, pattern, init, name)
  s, pattern = checkstring(s, 1, name), checkstring(pattern, 2, name)
  init = start_of(checkinteger(init, 3, name, 1), #s)
  if init > #s + 1 then return nil end
  return match_from(s, pattern, init, 0)
end

function text.find(s, pattern, init, plain)
  if plain then
    s, pattern = checkstring(s, 1, "find"), checkstring(pattern, 2, "find")
    init = start_of(checkinteger(init, 3, "find", 1), #s)
    if init > #s + 1 then return nil end
    local first = plainfind(s, pattern, init)
    if #s > LONG then yield() end
    if first then return first, first + #pattern - 1 end
    return nil
  end
  local found = find(s, pattern, init, "find")
  if not found then return nil end
  return found[3], found[4], unpack(found, 5, found.n)
end

-- The captures of a match, or all of it where the pattern has none.
local function captures(s, found)
  if found.n < 5 then return sub(s, found[3], found[4]) end
  return unpack(found, 5, found.n)
end

function text.match(s, pattern, init)
  local found = find(s, pattern, init, "match")
  if not found then return nil end
  return captures(s, found)
end

function text.gmatch(s, pattern, init)
  s, pattern = checkstring(s, 1, "gmatch"), checkstring(pattern, 2, "gmatch")
  local at, refused = start_of(checkinteger(init, 3, "gmatch", 1), #s), 0
  if sub(pattern, 1, 1) == "^" then pattern = "%" .. pattern end
  return function()
    if at > #s + 1 then return nil end
    local found = match_from(s, pattern, at, refused)
    if not found then
      at = #s + 2
      return nil
    end
    at = found[4] + 1
    refused = at
    return captures(s, found)
  end
end

-- What a text replaces a match by.
local function expand(s, found, replacement, out)
  local at = 1
  while true do
    local percent = plainfind(replacement, "%", at)
    if not percent then break end
    out[#out + 1] = sub(replacement, at, percent - 1)
    local sign = sub(replacement, percent + 1, percent + 1)
    local digit = tonumber(sign)
    if sign == "%" then
      out[#out + 1] = "%"
    elseif digit == nil then
      error("invalid use of '%' in replacement string", 0)
    elseif digit == 0 or (digit == 1 and found.n < 5) then
      out[#out + 1] = sub(s, found[3], found[4])
    elseif found.n < digit + 4 then
      error("invalid capture index %" .. digit .. " in replacement string", 0)
    else
      out[#out + 1] = found[digit + 4]
    end
    at = percent + 2
  end
  out[#out + 1] = sub(replacement, at)
end

function text.gsub(s, pattern, replacement, most)
  s, pattern = checkstring(s, 1, "gsub"), checkstring(pattern, 2, "gsub")
  local kind = type(replacement)
  if kind == "number" then
    replacement, kind = tostring(replacement), "string"
  elseif kind ~= "string" and kind ~= "table" and kind ~= "function" then
    error("bad argument #3 to 'gsub' (string/function/table expected, got " .. kind .. ")", 2)
  end
  most = checkinteger(most, 4, "gsub", #s + 1)
  local anchored = sub(pattern, 1, 1) == "^"
  local out, copied, at, refused, count = {}, 1, 1, 0, 0
  while count < most and at <= #s + 1 do
    local found = match_from(s, pattern, at, refused)
    if not found then break end
    count = count + 1
    out[#out + 1] = sub(s, copied, found[3] - 1)
    if kind == "string" then
      expand(s, found, replacement, out)
    else
      local value
      if kind == "table" then value = replacement[(captures(s, found))] else value = replacement(captures(s, found)) end
      if not value then
        out[#out + 1] = sub(s, found[3], found[4])
      elseif type(value) == "string" or type(value) == "number" then
        out[#out + 1] = value
      else
        error("invalid replacement value (a " .. type(value) .. ")", 2)
      end
    end
    at = found[4] + 1
    refused, copied = at, at
    if anchored then break end
  end
  out[#out + 1] = sub(s, copied)
  local result = concat(out)
  if #result > LONG then yield() end
  return result, count
end

local strings = getmetatable("")
strings.__index = text
-- Arithmetic reads the numbers of texts.
for _, name in ipairs({ "add", "sub", "mul", "mod", "pow", "div", "idiv", "unm" }) do
  local original = strings["__" .. name]
  strings["__" .. name] = function(a, b)
    if type(a) == "string" then pause_for(#a) end
    if type(b) == "string" then pause_for(#b) end
    return unprotected(pcall(original, a, b))
  end
end

local list = { pack = table.pack }

-- The last index of the sequence in front of the first hole.
local function length_of(t)
  local n = #t
  if n > 4194304 then error("the table has a hole", 3) end
  return n
end

function list.concat(t, separator, first, last)
  checktable(t, 1, "concat")
  first, last = checkinteger(first, 3, "concat", 1), last == nil and length_of(t) or checkinteger(last, 4, "concat")
  if last - first > MANY then yield() end
  local result = concat(t, separator, first, last)
  if #result > LONG then yield() end
  return result
end

function list.insert(t, ...)
  checktable(t, 1, "insert")
  local given = select("#", ...)
  local after = length_of(t) + 1
  if given == 1 then
    t[after] = (...)
    return
  elseif given ~= 2 then
    error("wrong number of arguments to 'insert'", 2)
  end
  local at, value = ...
  at = checkinteger(at, 2, "insert")
  if at < 1 or at > after then error("bad argument #2 to 'insert' (position out of bounds)", 2) end
  for i = after, at + 1, -1 do t[i] = t[i - 1] end
  t[at] = value
end

function list.remove(t, at)
  checktable(t, 1, "remove")
  local size = length_of(t)
  if at == nil then
    at = size
  else
    at = checkinteger(at, 2, "remove")
    if size + 1 ~= at and not (at >= 1 and at <= size + 1) and not (size == 0 and at == 0) then
      error("bad argument #2 to 'remove' (position out of bounds)", 2)
    end
  end
  local value = t[at]
  for i = at, size - 1 do t[i] = t[i + 1] end
  if at <= size or value ~= nil then t[at < size and size or at] = nil end
  return value
end

function list.move(from, first, last, at, to)
  checktable(from, 1, "move")
  to = to or from
  checktable(to, 5, "move")
  first, last, at = checkinteger(first, 2, "move"), checkinteger(last, 3, "move"), checkinteger(at, 4, "move")
  if last >= first then
    if at > last or at <= first or to ~= from then
      for i = 0, last - first do to[at + i] = from[first + i] end
    else
      for i = last - first, 0, -1 do to[at + i] = from[first + i] end
    end
  end
  return to
end

function list.sort(t, before)
  checktable(t, 1, "sort")
  local n = length_of(t)
  sort(t, n, before or function(a, b) return a < b end)
end

function list.unpack(t, first, last)
  checktable(t, 1, "unpack")
  first, last = checkinteger(first, 2, "unpack", 1), last == nil and length_of(t) or checkinteger(last, 3, "unpack")
  if last >= first and (last - first < 0 or last - first >= 8000) then error("too many results to unpack", 2) end
  return unpack(t, first, last)
end

local numbers = {}
for name, value in rawnext, math do
  if name ~= "random" and name ~= "randomseed" then numbers[name] = value end
end

local runes = {}
for name, value in rawnext, utf8 do runes[name] = value end
runes.len, runes.offset = paced(utf8.len), paced(utf8.offset)

-- A library cannot be changed, so that no call meets what another has left in it.
local function fixed(library)
  return setmetatable({}, {
    __index = library,
    __newindex = function() error("libraries cannot be changed", 2) end,
    __metatable = false,
  })
end

base.string, base.table, base.math, base.utf8 = fixed(text), fixed(list), fixed(numbers), fixed(runes)

-- The variables of one call.
local shared = { __index = base, __metatable = false }
local function environment()
  local variables = setmetatable({}, shared)
  variables._G = variables
  return variables
end

return environment, number_key
