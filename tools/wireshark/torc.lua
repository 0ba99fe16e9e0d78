-- A dissector of Torc's internode protocol for Wireshark and tshark: the greeting, frames, verbs, and which answer
-- belongs to which request. The layout is that of docs/design/rpc.md; tests/wireshark holds this file to it.
--
--   wireshark -X lua_script:tools/wireshark/torc.lua …
--
-- A connection is known by its port, 7000, or by its greeting where no other dissector has the port
-- (`-o tcp.try_heuristic_first:TRUE` lets the greeting decide always). Otherwise: Decode As… → TORC.

local torc = Proto("torc", "Torc internode protocol")

local MAGIC = "\xF5TorcRPC"
local PREFIX_LEN, HEADER_LEN, CHECKED_LEN = 10, 30, 26
local HELLO_LEN_MAX = 1024

local KINDS = { [1] = "request", [2] = "one way", [3] = "answer", [4] = "refusal", [5] = "ping", [6] = "pong" }
local PACKINGS = { [0] = "none", [1] = "LZ4", [2] = "Zstd" }
local CLASSES = { [0] = "request", [1] = "urgent", [2] = "bulk" }
local VERBS = {
  [1] = "echo", [2] = "gossip", [3] = "join", [4] = "last_heard",
  [8] = "raft", [9] = "raft_forward", [10] = "raft_snapshot",
  [16] = "read", [17] = "read_digest", [18] = "apply", [19] = "increment", [20] = "truncate", [21] = "hint",
  [22] = "batch_store", [23] = "batch_remove", [24] = "read_repair", [25] = "traced", [26] = "forward", [27] = "outcome",
  [28] = "ring", [29] = "nearest", [30] = "aggregate", [31] = "scan_index",
  [32] = "paxos_prepare", [33] = "paxos_propose", [34] = "paxos_commit",
  [48] = "repair_open", [49] = "repair_digest", [50] = "repair_rows", [51] = "repair_close",
  [64] = "stream_open", [65] = "stream_chunk", [66] = "stream_close", [67] = "stream_files",
}
local OUTCOMES = {
  [0] = "accepted", [1] = "another cluster's name", [2] = "no common version", [3] = "the same host id",
  [4] = "too many connections", [5] = "not ready", [6] = "malformed", [7] = "plain text", [8] = "removed",
}
local REFUSALS = {
  [1] = "unknown verb", [2] = "overloaded", [3] = "expired", [4] = "answer too large", [5] = "answer dropped",
  [6] = "stopped",
}

local f = torc.fields
f.hello = ProtoField.none("torc.hello", "Hello")
f.version_min = ProtoField.uint16("torc.hello.version_min", "Lowest version")
f.version_max = ProtoField.uint16("torc.hello.version_max", "Highest version")
f.version = ProtoField.uint16("torc.hello.version", "Version agreed")
f.host = ProtoField.guid("torc.hello.host", "Host id")
f.shard_count = ProtoField.uint16("torc.hello.shard_count", "Shards")
f.source_shard = ProtoField.uint16("torc.hello.source_shard", "Shard that sends")
f.wanted_shard = ProtoField.uint16("torc.hello.wanted_shard", "Shard that is to own the connection")
f.shard = ProtoField.uint16("torc.hello.shard", "Shard that owns the connection")
f.class = ProtoField.uint8("torc.hello.class", "Class", base.DEC, CLASSES)
f.offered = ProtoField.uint8("torc.hello.packings", "Packings offered", base.HEX)
f.cluster = ProtoField.string("torc.hello.cluster_name", "Cluster name")
f.outcome = ProtoField.uint8("torc.hello.outcome", "Outcome", base.DEC, OUTCOMES)
f.hello_packing = ProtoField.uint8("torc.hello.packing", "Packing agreed", base.DEC, PACKINGS)
f.hello_message = ProtoField.string("torc.hello.message", "Message")
f.hello_checksum = ProtoField.uint32("torc.hello.checksum", "Checksum", base.HEX)
f.len = ProtoField.uint32("torc.len", "Length of the body")
f.kind = ProtoField.uint8("torc.kind", "Kind", base.DEC, KINDS)
f.verb = ProtoField.uint8("torc.verb", "Verb", base.DEC, VERBS)
f.packing = ProtoField.uint8("torc.packing", "Packing", base.DEC, PACKINGS)
f.stream = ProtoField.uint64("torc.stream", "Stream", base.HEX)
f.remaining = ProtoField.uint32("torc.remaining_ms", "Milliseconds left")
f.frame_shard = ProtoField.uint16("torc.shard", "Shard that is to serve it")
f.body_checksum = ProtoField.uint32("torc.body_checksum", "Checksum of the body", base.HEX)
f.checksum = ProtoField.uint32("torc.checksum", "Checksum of the header", base.HEX)
f.unpacked_len = ProtoField.uint32("torc.unpacked_len", "Length when unpacked")
f.body = ProtoField.bytes("torc.body", "Body")
f.refusal_code = ProtoField.uint16("torc.refusal.code", "Refusal", base.DEC, REFUSALS)
f.refusal_message = ProtoField.string("torc.refusal.message", "Why")
f.answered_in = ProtoField.framenum("torc.answered_in", "Answered in", base.NONE, frametype.RESPONSE)
f.answer_to = ProtoField.framenum("torc.answer_to", "Answer to", base.NONE, frametype.REQUEST)
f.time = ProtoField.relative_time("torc.time", "Time since the request")

local bad_checksum = ProtoExpert.new("torc.bad_checksum", "The checksum is wrong", expert.group.CHECKSUM, expert.severity.ERROR)
local malformed = ProtoExpert.new("torc.malformed", "No frame begins here", expert.group.MALFORMED, expert.severity.ERROR)
torc.experts = { bad_checksum, malformed }

torc.prefs.verify_bodies = Pref.bool("Verify the checksums of bodies", true, "Costs time with long bodies")

-- CRC-32 (IEEE), a byte at a time.
local band, bxor, bnot, rshift = bit32.band, bit32.bxor, bit32.bnot, bit32.rshift
local crc_table = {}
for byte = 0, 255 do
  local crc = byte
  for _ = 1, 8 do
    if band(crc, 1) == 1 then crc = bxor(rshift(crc, 1), 0xEDB88320) else crc = rshift(crc, 1) end
  end
  crc_table[byte] = crc
end

local function crc32(bytes)
  local crc = 0xFFFFFFFF
  for at = 1, #bytes do
    crc = bxor(rshift(crc, 8), crc_table[band(bxor(crc, bytes:byte(at)), 0xFF)])
  end
  return bnot(crc)
end

local function add_checksum(tree, field, range, covered)
  local item = tree:add(field, range)
  local computed = crc32(covered)
  if computed ~= range:uint() then
    item:append_text(string.format(" (wrong: computed 0x%08x)", computed))
    item:add_proto_expert_info(bad_checksum)
  end
end

-- Which packet asked and which answered, by TCP stream and stream number; and who connected, by TCP stream.
local requests, answers, greeters = {}, {}, {}
function torc.init()
  requests, answers, greeters = {}, {}, {}
end

local tcp_stream = Field.new("tcp.stream")

local function name_of(names, value)
  return names[value] or tostring(value)
end

local function dissect_hello(tvb, pinfo, tree)
  local following = tvb(8, 2):uint()
  local len = PREFIX_LEN + following
  local part = tree:add(f.hello, tvb(0, len))
  -- Hello and its answer have no mark of their own: the side that connects sends first.
  local stream, speaker = tcp_stream().value, tostring(pinfo.src) .. ":" .. pinfo.src_port
  greeters[stream] = greeters[stream] or speaker
  local is_answer = greeters[stream] ~= speaker
  local at = PREFIX_LEN
  local function field(proto_field, bytes)
    local range = tvb(at, bytes)
    part:add(proto_field, range)
    at = at + bytes
    return range
  end
  local info
  if is_answer then
    local outcome = field(f.outcome, 1):uint()
    field(f.version, 2)
    field(f.hello_packing, 1)
    field(f.host, 16)
    field(f.shard_count, 2)
    field(f.shard, 2)
    local message_len = tvb(at, 2):uint()
    at = at + 2
    info = "hello " .. name_of(OUTCOMES, outcome)
    if message_len > 0 then
      info = info .. ": " .. field(f.hello_message, message_len):string()
    end
  else
    field(f.version_min, 2)
    field(f.version_max, 2)
    field(f.host, 16)
    field(f.shard_count, 2)
    field(f.source_shard, 2)
    local wanted = field(f.wanted_shard, 2):uint()
    local class = field(f.class, 1):uint()
    field(f.offered, 1)
    local name_len = tvb(at, 1):uint()
    at = at + 1
    local name = field(f.cluster, name_len):string()
    info = string.format("hello to shard %d for %s of %s", wanted, name_of(CLASSES, class), name)
  end
  part:append_text(": " .. info)
  add_checksum(part, f.hello_checksum, tvb(len - 4, 4), tvb:raw(0, len - 4))
  return info
end

local function relate(pinfo, part, kind, key)
  if kind == 1 then
    requests[key] = { number = pinfo.number, time = pinfo.abs_ts }
    if answers[key] then part:add(f.answered_in, answers[key]):set_generated() end
  elseif kind == 3 or kind == 4 then
    answers[key] = pinfo.number
    local request = requests[key]
    if request then
      part:add(f.answer_to, request.number):set_generated()
      local passed = pinfo.abs_ts - request.time
      local seconds = math.floor(passed)
      part:add(f.time, NSTime.new(seconds, math.floor((passed - seconds) * 1e9))):set_generated()
    end
  end
end

local function dissect_body(tvb, part, kind, packing)
  local body = tvb(HEADER_LEN)
  if packing ~= 0 and body:len() >= 4 then
    part:add(f.unpacked_len, body(0, 4))
    part:add(f.body, body(4))
  elseif kind == 4 and packing == 0 and body:len() >= 2 then
    part:add(f.refusal_code, body(0, 2))
    if body:len() > 2 then part:add(f.refusal_message, body(2)) end
  else
    part:add(f.body, body)
  end
end

local function dissect_frame(tvb, pinfo, tree)
  local len, kind, verb = tvb(0, 4):uint(), tvb(4, 1):uint(), tvb(5, 1):uint()
  local packing = tvb(6, 1):uint()
  local part = tree:add(torc, tvb(), "Torc frame")
  part:add(f.len, tvb(0, 4))
  part:add(f.kind, tvb(4, 1))
  if verb ~= 0 then part:add(f.verb, tvb(5, 1)) end
  part:add(f.packing, tvb(6, 1))
  part:add(f.stream, tvb(8, 8))
  if kind == 1 or kind == 2 then
    part:add(f.remaining, tvb(16, 4))
    part:add(f.frame_shard, tvb(20, 2))
  end
  if torc.prefs.verify_bodies then
    add_checksum(part, f.body_checksum, tvb(22, 4), tvb:raw(HEADER_LEN, len))
  else
    part:add(f.body_checksum, tvb(22, 4))
  end
  add_checksum(part, f.checksum, tvb(26, 4), tvb:raw(0, CHECKED_LEN))
  if len > 0 then dissect_body(tvb, part, kind, packing) end
  if kind == 1 or kind == 3 or kind == 4 then
    relate(pinfo, part, kind, tcp_stream().value .. " " .. tostring(tvb(8, 8):uint64()))
  end
  local info = name_of(KINDS, kind)
  if verb ~= 0 then info = name_of(VERBS, verb) .. " " .. info end
  part:append_text(": " .. info)
  return info
end

-- How long the message at the beginning of `tvb` is; nil when that cannot be told yet, false when there is none.
local function message_len(tvb)
  if tvb:len() < PREFIX_LEN then return nil end
  if tvb:raw(0, 8) == MAGIC then
    local following = tvb(8, 2):uint()
    return following <= HELLO_LEN_MAX and PREFIX_LEN + following
  end
  if tvb:len() < HEADER_LEN then return nil end
  local kind, zero = tvb(4, 1):uint(), tvb(7, 1):uint()
  return KINDS[kind] ~= nil and zero == 0 and HEADER_LEN + tvb(0, 4):uint()
end

function torc.dissector(tvb, pinfo, root)
  pinfo.cols.protocol = "TORC"
  local tree = root:add(torc, tvb())
  local infos, at = {}, 0
  while at < tvb:len() do
    local rest = tvb(at):tvb()
    local len = message_len(rest)
    if len == false then
      tree:add_proto_expert_info(malformed)
      break
    end
    if len == nil or len > rest:len() then
      pinfo.desegment_offset = at
      pinfo.desegment_len = len and len - rest:len() or DESEGMENT_ONE_MORE_SEGMENT
      break
    end
    local message = tvb(at, len):tvb()
    local is_hello = message:raw(0, 1) == "\xF5" and message:raw(0, 8) == MAGIC
    infos[#infos + 1] = (is_hello and dissect_hello or dissect_frame)(message, pinfo, tree)
    at = at + len
  end
  if #infos > 0 then pinfo.cols.info = table.concat(infos, ", ") end
  return tvb:len()
end

-- A connection that begins with the magic is ours from then on.
local function heuristic(tvb, pinfo, root)
  if tvb:len() < PREFIX_LEN or tvb:raw(0, 8) ~= MAGIC then return false end
  pinfo.conversation = torc
  torc.dissector(tvb, pinfo, root)
  return true
end

torc:register_heuristic("tcp", heuristic)
DissectorTable.get("tcp.port"):add(7000, torc)
