#include <fcntl.h>

#include <algorithm>
#include <map>

#include "io/line_file.h"
#include "record/trace_content.h"
#include "record/trace_file.h"
#include "record/trace_frames.h"

namespace millrace::record {
namespace {

constexpr std::size_t kFrameSlots = 1u << 13;   ///< a frame of records: 512 KiB before it is packed
constexpr std::size_t kBufferSlots = 1u << 14;  ///< of all lanes together
constexpr std::size_t kFrameSamples = 1u << 12;
constexpr std::size_t kMostStacks = 1u << 18, kMostNames = 1u << 16;

}  // namespace

struct TraceWriter::State {
    using Lane = std::tuple<std::uint32_t, std::uint16_t, std::uint16_t>;

    io::FileDescriptor file;
    io::Path path;
    std::uint64_t written = 0;
    std::map<Lane, std::vector<Record>> lanes;
    std::size_t waiting = 0;  ///< slots in all lanes
    std::vector<SampleRow> samples;
    std::map<std::vector<TraceFrame>, std::uint32_t> stacks;
    std::map<std::string, std::uint32_t, std::less<>> names;

    base::Status append(io::Bytes bytes) {
        MILLRACE_TRY(io::append_whole(file, bytes, written, path));
        written += bytes.size();
        return base::ok();
    }

    base::Status frame(FrameKind kind, ContentWriter& content) { return append(pack_frame(kind, io::bytes_of(content.bytes()))); }
    /// A frame of these rows and texts one after the other.
    template <class... Parts>
    base::Status frame_of(FrameKind kind, const Parts&... parts) {
        ContentWriter content;
        (content.put(parts), ...);
        return frame(kind, content);
    }

    base::Status flush_lane(const Lane& lane, std::vector<Record>& slots) {
        if (slots.empty()) return base::ok();
        ContentWriter content;
        content.put(RecordsHead{std::get<0>(lane), std::get<1>(lane), std::get<2>(lane)});
        spread_rows(std::as_bytes(std::span(slots)), sizeof(Record), content.bytes());
        waiting -= slots.size();
        slots.clear();
        return frame(FrameKind::kRecords, content);
    }

    base::Status flush_lanes() {
        base::Status first = base::ok();
        for (auto& [lane, slots] : lanes)
            if (base::Status done = flush_lane(lane, slots); !done.ok() && first.ok()) first = done;
        lanes.clear();
        return first;
    }

    base::Status flush_samples() {
        if (samples.empty()) return base::ok();
        ContentWriter content;
        spread_rows(std::as_bytes(std::span(samples)), sizeof(SampleRow), content.bytes());
        samples.clear();
        return frame(FrameKind::kSamples, content);
    }
};

TraceWriter::TraceWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
TraceWriter::TraceWriter(TraceWriter&&) noexcept = default;
TraceWriter& TraceWriter::operator=(TraceWriter&&) noexcept = default;
TraceWriter::~TraceWriter() {
    if (state_) (void)flush();
}

base::Result<TraceWriter> TraceWriter::create(const io::Path& path) {
    auto state = std::make_unique<State>();
    MILLRACE_SET(state->file, io::open_file(path, O_RDWR | O_CREAT | O_EXCL));
    state->path = path;
    MILLRACE_TRY(state->append(io::bytes_of(kTraceMagic)));
    return TraceWriter(std::move(state));
}

base::Status TraceWriter::records(const TraceOrigin& origin, std::span<const Record> slots) {
    if (slots.empty()) return base::ok();
    const State::Lane lane{origin.pid, origin.incarnation, origin.lane};
    std::vector<Record>& waiting = state_->lanes[lane];
    // A frame holds whole records: what comes in one call is not cut unless it is larger than any frame may be.
    constexpr std::size_t kMostInFrame = (kTraceFrameCap - sizeof(RecordsHead)) / sizeof(Record);
    MILLRACE_ASSERT(slots.size() <= kMostInFrame, "more records at once than a frame holds");
    if (waiting.size() + slots.size() > kFrameSlots) MILLRACE_TRY(state_->flush_lane(lane, waiting));
    waiting.insert(waiting.end(), slots.begin(), slots.end());
    state_->waiting += slots.size();
    if (waiting.size() >= kFrameSlots) return state_->flush_lane(lane, waiting);
    return state_->waiting >= kBufferSlots ? state_->flush_lanes() : base::ok();
}

base::Status TraceWriter::sample(const TraceSample& sample) {
    state_->samples.push_back({sample.time, sample.pid, sample.thread, sample.stack, sample.wait,
                               static_cast<std::uint32_t>(static_cast<unsigned char>(sample.state)), 0});
    return state_->samples.size() >= kFrameSamples ? state_->flush_samples() : base::ok();
}

base::Status TraceWriter::block(const TraceBlock& block) {
    return state_->frame_of(FrameKind::kBlocks, BlockRow{block.begin, block.end, block.steps, block.pid, block.calls_per_step,
                                                         static_cast<std::uint8_t>(block.call), 0});
}

base::Status TraceWriter::process(const TraceProcess& process) {
    const ProcessHead head{process.appeared, process.ended,       process.pid,
                           process.parent,   process.main_thread, process.has_gpu ? 1u : 0u};
    return state_->frame_of(FrameKind::kProcess, head, std::string_view(process.command));
}

base::Status TraceWriter::clock(const TraceClock& clock) {
    return state_->frame_of(FrameKind::kClock, ClockRow{clock.monotonic, clock.wall});
}

base::Status TraceWriter::loops(const FunctionLoops& loops) {
    ContentWriter content;
    content.put(std::string_view(loops.file));
    content.put(std::string_view(loops.function));
    for (const LineRange range : loops.loops) content.put(range);
    return state_->frame(FrameKind::kLoops, content);
}

base::Status TraceWriter::note(std::string_view text) { return state_->frame_of(FrameKind::kNote, text); }

std::uint32_t TraceWriter::stack(std::span<const TraceFrame> frames) {
    if (frames.empty()) return 0;
    std::vector<TraceFrame> key(frames.begin(),
                                frames.begin() + static_cast<std::ptrdiff_t>(std::min(frames.size(), kTraceStackCap)));
    const auto found = state_->stacks.find(key);
    if (found != state_->stacks.end()) return found->second;
    if (state_->stacks.size() >= kMostStacks) return 0;
    const auto id = static_cast<std::uint32_t>(state_->stacks.size() + 1);
    ContentWriter content;
    content.put(id);
    content.put(static_cast<std::uint32_t>(key.size()));
    for (const TraceFrame& frame : key) {
        content.put(name(frame.file));
        content.put(name(frame.function));
        content.put(frame.line);
        content.put(frame.native ? 1u : 0u);
    }
    state_->stacks.emplace(std::move(key), id);
    (void)state_->frame(FrameKind::kStack, content);
    return id;
}

std::uint32_t TraceWriter::name(std::string_view text) {
    text = text.substr(0, kTraceTextCap);
    if (text.empty()) return 0;
    const auto found = state_->names.find(text);
    if (found != state_->names.end()) return found->second;
    if (state_->names.size() >= kMostNames) return 0;
    const auto id = static_cast<std::uint32_t>(state_->names.size() + 1);
    state_->names.emplace(text, id);
    (void)state_->frame_of(FrameKind::kName, id, text);
    return id;
}

base::Status TraceWriter::flush() {
    base::Status records = state_->flush_lanes();
    base::Status samples = state_->flush_samples();
    return records.ok() ? samples : records;
}

std::uint64_t TraceWriter::bytes() const { return state_->written; }

}  // namespace millrace::record
