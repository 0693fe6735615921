#include "diagnose/reading/trace_reader.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "diagnose/reading/kineto_event.h"
#include "record/probe_records.h"
#include "record/trace_file.h"

namespace millrace::diagnose {
namespace {

constexpr std::size_t kMostTraceProcesses = 1u << 13, kMostClocks = 1u << 20, kMostNotes = 1u << 12;

/// Calls `use` with each record and the slots behind it. False when the slots make no sense from some record on.
template <class Use>
bool for_each_record(const std::vector<std::byte>& rows, const Use& use) {
    std::vector<record::Record> slots(rows.size() / sizeof(record::Record));
    if (!slots.empty()) std::memcpy(slots.data(), rows.data(), slots.size() * sizeof(record::Record));
    for (std::size_t at = 0; at < slots.size();) {
        const auto parts = record::parts_behind(slots[at]);
        if (!parts || slots.size() - at - 1 < *parts) return false;
        use(slots[at],
            std::as_bytes(std::span(slots)).subspan((at + 1) * sizeof(record::Record), *parts * sizeof(record::Record)));
        at += 1 + *parts;
    }
    return true;
}

/// The first `count` parts of one kind. The slots hold as many, by parts_behind.
template <class Part>
std::vector<Part> parts_of(io::Bytes slots, std::size_t count) {
    std::vector<Part> parts(std::min(count, slots.size() / sizeof(Part)));
    if (!parts.empty()) std::memcpy(parts.data(), slots.data(), parts.size() * sizeof(Part));
    return parts;
}

std::optional<record::TraceOrigin> origin_of(record::ContentReader& content) {
    const auto origin = content.get<record::TraceOrigin>();
    return content.rest().size() % sizeof(record::Record) == 0 ? origin : std::nullopt;
}

}  // namespace

/// Fills the reader's dictionaries from the frames of the first pass.
class TraceReader::Collector {
public:
    Collector(TraceReader& reader, const TraceLimits& limits) : reader_(reader), limits_(limits) {}

    void take(std::uint8_t kind, io::Bytes bytes) {
        if (!understood(kind, bytes)) ++reader_.damage_.bad_frames;
    }

private:
    bool understood(std::uint8_t kind, io::Bytes bytes) {
        record::ContentReader content(bytes);
        switch (static_cast<record::FrameKind>(kind)) {
            case record::FrameKind::kRecords: return take_records(content);
            case record::FrameKind::kSamples: return bytes.size() % sizeof(record::TraceSample) == 0;
            case record::FrameKind::kBlocks: return bytes.size() % sizeof(record::TraceBlock) == 0;
            case record::FrameKind::kProcess: return take_process(content);
            case record::FrameKind::kClock: return take_clock(content);
            case record::FrameKind::kNote: return take_note(content);
            case record::FrameKind::kStack: return take_stack(content);
            case record::FrameKind::kName: return take_name(content);
            case record::FrameKind::kLoops: return take_loops(content);
        }
        ++reader_.damage_.unknown_frames;
        return true;
    }

    /// Whether there is room for another entry with so many bytes; counts it.
    bool room_for(std::size_t bytes) {
        if (entries_ >= limits_.entries || bytes_ + bytes > limits_.text_bytes) {
            ++reader_.damage_.forgotten;
            return false;
        }
        ++entries_;
        bytes_ += bytes;
        return true;
    }

    bool take_records(record::ContentReader& content) {
        const auto origin = origin_of(content);
        if (!origin) return false;
        return for_each_record(
            record::gather_rows(content.rest(), sizeof(record::Record)), [&](const record::Record& record, io::Bytes parts) {
                const Key key{origin->pid, origin->incarnation, record.id};
                if (record.kind == record::RecordKind::kText && room_for(record.bytes))
                    reader_.texts_.insert_or_assign(
                        key, std::string(reinterpret_cast<const char*>(parts.data()), static_cast<std::size_t>(record.bytes)));
                if (record.kind == record::RecordKind::kSite && room_for(record.count * sizeof(record::SiteFrame)))
                    reader_.sites_.insert_or_assign(key, parts_of<record::SiteFrame>(parts, record.count));
            });
    }

    bool take_process(record::ContentReader& content) {
        const auto head = content.get<record::ProcessHead>();
        auto command = content.get_text();
        if (!head || !command) return false;
        auto known = std::ranges::find(reader_.processes_, head->pid, &record::TraceProcess::pid);
        if (known == reader_.processes_.end()) {
            if (reader_.processes_.size() >= kMostTraceProcesses || !room_for(command->size())) return true;
            known = reader_.processes_.emplace(known);
        }
        *known = {head->pid,      head->parent, head->main_thread,  head->has_gpu != 0,
                  head->appeared, head->ended,  std::move(*command)};
        return true;
    }

    bool take_clock(record::ContentReader& content) {
        const auto clock = content.get<record::TraceClock>();
        if (!clock || !std::isfinite(clock->wall)) return false;
        if (reader_.clocks_.size() < kMostClocks) reader_.clocks_.push_back(*clock);
        return true;
    }

    bool take_note(record::ContentReader& content) {
        auto text = content.get_text();
        if (!text) return false;
        if (reader_.notes_.size() < kMostNotes && room_for(text->size())) reader_.notes_.push_back(std::move(*text));
        return true;
    }

    bool take_stack(record::ContentReader& content) {
        const auto id = content.get<std::uint32_t>();
        const auto count = content.get<std::uint32_t>();
        if (!id || !count || *count > record::kTraceStackCap) return false;
        std::vector<record::TraceFrame> frames;
        std::size_t bytes = 0;
        for (std::uint32_t frame = 0; frame < *count; ++frame) {
            const auto words = content.get<std::array<std::uint32_t, 4>>();
            if (!words) return false;
            frames.push_back(
                {std::string(reader_.name((*words)[0])), std::string(reader_.name((*words)[1])), (*words)[2], (*words)[3] != 0});
            bytes += sizeof(record::TraceFrame) + frames.back().file.size() + frames.back().function.size();
        }
        if (room_for(bytes)) reader_.stacks_.insert_or_assign(*id, std::move(frames));
        return true;
    }

    bool take_name(record::ContentReader& content) {
        const auto id = content.get<std::uint32_t>();
        auto text = content.get_text();
        if (!id || !text) return false;
        if (room_for(text->size())) reader_.names_.insert_or_assign(*id, std::move(*text));
        return true;
    }

    bool take_loops(record::ContentReader& content) {
        auto file = content.get_text(), function = content.get_text();
        if (!file || !function || content.rest().size() % sizeof(record::LineRange) != 0) return false;
        record::FunctionLoops loops{std::move(*file), std::move(*function), {}};
        if (!room_for(loops.file.size() + loops.function.size() + content.rest().size())) return true;
        while (const auto range = content.get<record::LineRange>()) loops.loops.push_back(*range);
        reader_.loops_.add(loops);
        return true;
    }

    TraceReader& reader_;
    const TraceLimits limits_;
    std::size_t entries_ = 0, bytes_ = 0;
};

base::Result<TraceReader> TraceReader::open(const io::Path& path, const TraceLimits& limits) {
    TraceReader reader;
    reader.path_ = path;
    Collector collector(reader, limits);
    MILLRACE_LET(scan,
                 record::scan_frames(path, 0, [&](std::uint8_t kind, io::Bytes content) { collector.take(kind, content); }));
    reader.end_ = scan.end;
    reader.damage_.torn_bytes = scan.torn_bytes;
    reader.damage_.bad_frames += scan.bad_frames;
    return reader;
}

base::Status TraceReader::visit(TraceVisitor& visitor) const {
    const auto use = [&](std::uint8_t kind, io::Bytes bytes) {
        record::ContentReader content(bytes);
        if (kind == static_cast<std::uint8_t>(record::FrameKind::kRecords)) {
            const auto origin = origin_of(content);
            if (!origin) return;
            for_each_record(
                record::gather_rows(content.rest(), sizeof(record::Record)), [&](const record::Record& record, io::Bytes parts) {
                    if (record.kind == record::RecordKind::kText || record.kind == record::RecordKind::kSite) return;
                    visitor.record(
                        *origin, record,
                        parts_of<record::Argument>(parts, record.kind == record::RecordKind::kArguments ? record.count : 0));
                });
        } else if (kind == static_cast<std::uint8_t>(record::FrameKind::kSamples) &&
                   bytes.size() % sizeof(record::TraceSample) == 0) {
            const std::vector<std::byte> rows = record::gather_rows(bytes, sizeof(record::TraceSample));
            record::ContentReader each(rows);
            while (const auto sample = each.get<record::TraceSample>()) visitor.sample(*sample);
        } else if (kind == static_cast<std::uint8_t>(record::FrameKind::kBlocks) &&
                   bytes.size() % sizeof(record::TraceBlock) == 0) {
            while (auto block = content.get<record::TraceBlock>()) {
                if (block->call > record::CallKind::kAttribute) block->call = record::CallKind::kOther;
                if (std::isfinite(block->steps) && block->end >= block->begin) visitor.block(*block);
            }
        }
    };
    MILLRACE_TRY(record::scan_frames(path_, end_, use));
    return base::ok();
}

std::string_view TraceReader::text(const record::TraceOrigin& origin, std::uint32_t id) const {
    const auto found = texts_.find(Key{origin.pid, origin.incarnation, id});
    return found == texts_.end() ? std::string_view() : found->second;
}

std::vector<record::TraceFrame> TraceReader::site(const record::TraceOrigin& origin, std::uint32_t id) const {
    std::vector<record::TraceFrame> frames;
    const auto found = sites_.find(Key{origin.pid, origin.incarnation, id});
    if (found == sites_.end()) return frames;
    for (const record::SiteFrame& frame : found->second)
        frames.push_back(
            {std::string(text(origin, frame.file)), std::string(text(origin, frame.function)), frame.line, frame.native != 0});
    return frames;
}

const std::vector<record::TraceFrame>& TraceReader::stack(std::uint32_t id) const {
    static const std::vector<record::TraceFrame> kEmpty;
    const auto found = stacks_.find(id);
    return found == stacks_.end() ? kEmpty : found->second;
}

std::string_view TraceReader::name(std::uint32_t id) const {
    const auto found = names_.find(id);
    return found == names_.end() ? std::string_view() : found->second;
}

Window TraceReader::run(Time latest) const {
    if (processes_.empty()) return {};
    const auto moment = [](std::uint64_t time) { return static_cast<Time>(std::min<std::uint64_t>(time, kLatest)); };
    Window run{kLatest, 0, processes_.front().pid};
    for (const record::TraceProcess& process : processes_) {
        run.begin = std::min(run.begin, moment(process.appeared));
        run.end = std::max(run.end, process.ended != 0 ? moment(process.ended) : latest);
    }
    run.end = std::max(run.begin, run.end);
    return run;
}

double TraceReader::wall(std::uint64_t monotonic) const {
    if (clocks_.empty()) return 0;
    const auto distance = [&](const record::TraceClock& clock) {
        return clock.monotonic > monotonic ? clock.monotonic - monotonic : monotonic - clock.monotonic;
    };
    const record::TraceClock& nearest = *std::ranges::min_element(clocks_, {}, distance);
    return nearest.wall + 1e-9 * (static_cast<double>(monotonic) - static_cast<double>(nearest.monotonic));
}

}  // namespace millrace::diagnose
