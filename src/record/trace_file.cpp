#include "record/trace_file.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "io/checksum.h"
#include "io/line_file.h"
#include "io/packing.h"

namespace millrace::record {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are little endian, as is every machine with such a GPU");

struct Head {
    std::uint32_t stored = 0;    ///< bytes behind the head
    std::uint32_t checksum = 0;  ///< CRC-32C of the head behind this field and of the stored bytes
    std::uint32_t unpacked = 0;
    std::uint8_t kind = 0, packing = 0;
    std::uint16_t reserved = 0;
};
static_assert(sizeof(Head) == 16);
constexpr std::size_t kSummedFrom = 8;

constexpr int kLevel = 3;
constexpr std::size_t kWorthPacking = 128;
using Word = std::uint32_t;

/// Appends the packed content; false when that is no smaller.
bool pack(io::Bytes content, std::vector<std::byte>& to) {
    if (!io::have_zstd() || content.size() < kWorthPacking) return false;
    io::MemorySink packed;
    const auto packer = io::pack_zstd(packed, kLevel);
    if (!packer->write(content).ok() || !packer->finish().ok() || packed.bytes.size() >= content.size()) return false;
    to.insert(to.end(), packed.bytes.begin(), packed.bytes.end());
    return true;
}

std::uint32_t sum_of(const std::vector<std::byte>& frame) {
    return io::crc32c({reinterpret_cast<const char*>(frame.data()) + kSummedFrom, frame.size() - kSummedFrom});
}

/// Whether a head can be ours; what it says is otherwise not even a length to go on by.
bool plausible(const Head& head) {
    return head.unpacked <= kTraceFrameCap && head.stored <= head.unpacked &&
           (head.packing == static_cast<std::uint8_t>(FramePacking::kZstd) || head.stored == head.unpacked);
}

constexpr std::size_t kFrameSlots = 1u << 13;   ///< a frame of records: 512 KiB before it is packed
constexpr std::size_t kBufferSlots = 1u << 14;  ///< of all lanes together
constexpr std::size_t kFrameSamples = 1u << 12;
constexpr std::size_t kMostStacks = 1u << 18, kMostTraceNames = 1u << 16;

template <class T>
void put(std::string& content, const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    content.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put(std::string& content, std::string_view text) {
    text = text.substr(0, kTraceTextCap);
    put(content, static_cast<std::uint32_t>(text.size()));
    content.append(text);
}

/// These rows and texts one after the other.
template <class... Parts>
std::string content_of(const Parts&... parts) {
    std::string content;
    (put(content, parts), ...);
    return content;
}

}  // namespace

std::vector<std::byte> pack_frame(FrameKind kind, io::Bytes content) {
    MILLRACE_ASSERT(content.size() <= kTraceFrameCap, "a frame is too large");
    std::vector<std::byte> frame(sizeof(Head));
    Head head;
    head.kind = static_cast<std::uint8_t>(kind);
    head.unpacked = static_cast<std::uint32_t>(content.size());
    if (pack(content, frame))
        head.packing = static_cast<std::uint8_t>(FramePacking::kZstd);
    else
        frame.insert(frame.end(), content.begin(), content.end());
    head.stored = static_cast<std::uint32_t>(frame.size() - sizeof head);
    std::memcpy(frame.data(), &head, sizeof head);
    head.checksum = sum_of(frame);
    std::memcpy(frame.data(), &head, sizeof head);
    return frame;
}

base::Result<FrameScan> scan_frames(const io::Path& path, std::uint64_t end,
                                    const std::function<void(std::uint8_t, io::Bytes)>& use) {
    MILLRACE_LET(opened, io::open_regular(path));
    const auto& [file, size] = opened;
    if (end == 0 || end > size) end = size;
    std::array<std::byte, kTraceMagic.size()> magic{};
    const bool long_enough = size >= magic.size();
    if (long_enough) MILLRACE_TRY(io::read_exactly(file, magic, 0, path));
    if (!long_enough || std::memcmp(magic.data(), kTraceMagic.data(), magic.size()) != 0)
        return base::Error{fmt::format("is no trace of a recording: it does not begin with '{}'", kTraceMagic), path.string()};

    FrameScan scan;
    scan.end = magic.size();
    std::vector<std::byte> frame;
    while (end - scan.end >= sizeof(Head)) {
        Head head;
        frame.resize(sizeof head);
        MILLRACE_TRY(io::read_exactly(file, frame, scan.end, path));
        std::memcpy(&head, frame.data(), sizeof head);
        if (!plausible(head) || end - scan.end - sizeof head < head.stored) break;
        frame.resize(sizeof head + head.stored);
        MILLRACE_TRY(io::read_exactly(file, std::span(frame).subspan(sizeof head), scan.end + sizeof head, path));
        scan.end += frame.size();
        const io::Bytes stored = io::Bytes(frame).subspan(sizeof head);
        if (sum_of(frame) != head.checksum) {
            ++scan.bad_frames;
        } else if (head.packing == static_cast<std::uint8_t>(FramePacking::kPlain)) {
            use(head.kind, stored);
        } else if (auto content = io::decompress_zstd(stored, head.unpacked, path); content.ok()) {
            use(head.kind, *content);
        } else {
            if (!io::have_zstd()) return content.error();
            ++scan.bad_frames;
        }
    }
    scan.torn_bytes = end - scan.end;
    return scan;
}

void spread_rows(io::Bytes rows, std::size_t width, std::string& to) {
    MILLRACE_ASSERT(width % sizeof(Word) == 0 && rows.size() % width == 0, "rows are whole");
    const std::size_t at = to.size(), count = rows.size() / width;
    to.resize(at + rows.size());
    std::vector<Word> before(width / sizeof(Word));
    for (std::size_t row = 0; row < count; ++row)
        for (std::size_t column = 0; column < before.size(); ++column) {
            Word word = 0;
            std::memcpy(&word, rows.data() + row * width + column * sizeof word, sizeof word);
            const Word difference = word - before[column];
            before[column] = word;
            for (std::size_t byte = 0; byte < sizeof word; ++byte)
                to[at + (sizeof word * column + byte) * count + row] = static_cast<char>(difference >> (8 * byte));
        }
}

std::vector<std::byte> gather_rows(io::Bytes from, std::size_t width) {
    const std::size_t count = from.size() / width;
    std::vector<std::byte> rows(count * width);
    std::vector<Word> before(width / sizeof(Word));
    for (std::size_t row = 0; row < count; ++row)
        for (std::size_t column = 0; column < before.size(); ++column) {
            Word difference = 0;
            for (std::size_t byte = 0; byte < sizeof difference; ++byte)
                difference |= std::to_integer<Word>(from[(sizeof(Word) * column + byte) * count + row]) << (8 * byte);
            before[column] += difference;
            std::memcpy(rows.data() + row * width + column * sizeof(Word), &before[column], sizeof(Word));
        }
    return rows;
}

base::Status TraceWriter::append(io::Bytes bytes) {
    MILLRACE_TRY(io::append_whole(file_, bytes, written_, path_));
    written_ += bytes.size();
    return base::ok();
}

base::Status TraceWriter::frame(FrameKind kind, const std::string& content) {
    return append(pack_frame(kind, io::bytes_of(content)));
}

base::Status TraceWriter::flush_lane(const TraceOrigin& lane, std::vector<Record>& slots) {
    if (slots.empty()) return base::ok();
    std::string content = content_of(lane);
    spread_rows(std::as_bytes(std::span(slots)), sizeof(Record), content);
    waiting_ -= slots.size();
    slots.clear();
    return frame(FrameKind::kRecords, content);
}

base::Status TraceWriter::flush_lanes() {
    base::Status first = base::ok();
    for (auto& [lane, slots] : lanes_)
        if (base::Status done = flush_lane(lane, slots); !done.ok() && first.ok()) first = done;
    lanes_.clear();
    return first;
}

base::Status TraceWriter::flush_samples() {
    if (samples_.empty()) return base::ok();
    std::string content;
    spread_rows(std::as_bytes(std::span(samples_)), sizeof(TraceSample), content);
    samples_.clear();
    return frame(FrameKind::kSamples, content);
}

TraceWriter::~TraceWriter() {
    if (file_.valid()) (void)flush();
}

base::Result<TraceWriter> TraceWriter::create(const io::Path& path) {
    MILLRACE_LET(file, io::open_file(path, O_RDWR | O_CREAT | O_EXCL));
    TraceWriter writer(std::move(file), path);
    MILLRACE_TRY(writer.append(io::bytes_of(kTraceMagic)));
    return writer;
}

base::Status TraceWriter::records(const TraceOrigin& origin, std::span<const Record> slots) {
    if (slots.empty()) return base::ok();
    std::vector<Record>& waiting = lanes_[origin];
    // A frame holds whole records: what comes in one call is not cut unless it is larger than any frame may be.
    constexpr std::size_t kMostInFrame = (kTraceFrameCap - sizeof(TraceOrigin)) / sizeof(Record);
    MILLRACE_ASSERT(slots.size() <= kMostInFrame, "more records at once than a frame holds");
    if (waiting.size() + slots.size() > kFrameSlots) MILLRACE_TRY(flush_lane(origin, waiting));
    waiting.insert(waiting.end(), slots.begin(), slots.end());
    waiting_ += slots.size();
    if (waiting.size() >= kFrameSlots) return flush_lane(origin, waiting);
    return waiting_ >= kBufferSlots ? flush_lanes() : base::ok();
}

base::Status TraceWriter::sample(const TraceSample& sample) {
    samples_.push_back(sample);
    return samples_.size() >= kFrameSamples ? flush_samples() : base::ok();
}

base::Status TraceWriter::block(const TraceBlock& block) { return frame(FrameKind::kBlocks, content_of(block)); }

base::Status TraceWriter::process(const TraceProcess& process) {
    const ProcessHead head{process.appeared, process.ended,       process.pid,
                           process.parent,   process.main_thread, process.has_gpu ? 1u : 0u};
    return frame(FrameKind::kProcess, content_of(head, std::string_view(process.command)));
}

base::Status TraceWriter::clock(const TraceClock& clock) { return frame(FrameKind::kClock, content_of(clock)); }

base::Status TraceWriter::loops(const FunctionLoops& loops) {
    std::string content = content_of(std::string_view(loops.file), std::string_view(loops.function));
    for (const LineRange range : loops.loops) put(content, range);
    return frame(FrameKind::kLoops, content);
}

base::Status TraceWriter::note(std::string_view text) { return frame(FrameKind::kNote, content_of(text)); }

std::uint32_t TraceWriter::stack(std::span<const TraceFrame> frames) {
    if (frames.empty()) return 0;
    std::vector<TraceFrame> key(frames.begin(),
                                frames.begin() + static_cast<std::ptrdiff_t>(std::min(frames.size(), kTraceStackCap)));
    const auto found = stacks_.find(key);
    if (found != stacks_.end()) return found->second;
    if (stacks_.size() >= kMostStacks) return 0;
    const auto id = static_cast<std::uint32_t>(stacks_.size() + 1);
    std::string content = content_of(id, static_cast<std::uint32_t>(key.size()));
    for (const TraceFrame& each : key) {
        const std::uint32_t file = name(each.file), function = name(each.function);
        content += content_of(file, function, each.line, each.native ? 1u : 0u);
    }
    stacks_.emplace(std::move(key), id);
    (void)frame(FrameKind::kStack, content);
    return id;
}

std::uint32_t TraceWriter::name(std::string_view text) {
    text = text.substr(0, kTraceTextCap);
    if (text.empty()) return 0;
    const auto found = names_.find(text);
    if (found != names_.end()) return found->second;
    if (names_.size() >= kMostTraceNames) return 0;
    const auto id = static_cast<std::uint32_t>(names_.size() + 1);
    names_.emplace(text, id);
    (void)frame(FrameKind::kName, content_of(id, text));
    return id;
}

base::Status TraceWriter::flush() {
    base::Status records = flush_lanes();
    base::Status samples = flush_samples();
    return records.ok() ? samples : records;
}

}  // namespace millrace::record
