#pragma once
// Reads trace.bin of a run directory (record/trace_file.h).

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "diagnose/timeline/timeline.h"
#include "record/step_loops.h"
#include "record/trace_file.h"

namespace millrace::diagnose {

/// What a reader passes over.
struct TraceDamage {
    std::uint64_t torn_bytes = 0;      ///< behind the last whole frame: being written, or cut by a crash
    std::uint64_t bad_frames = 0;      ///< with a wrong checksum, or of which the content makes no sense
    std::uint64_t unknown_frames = 0;  ///< of later versions
    std::uint64_t forgotten = 0;       ///< texts, sites, stacks beyond the limits
    bool operator==(const TraceDamage&) const = default;
};

/// How much of a trace's dictionaries is kept in memory.
struct TraceLimits {
    std::size_t text_bytes = std::size_t{128} << 20;
    std::size_t entries = std::size_t{1} << 21;
};

/// Gets a trace record by record, in the order of each lane. Everything behind a reference is gone after the call.
class TraceVisitor {
public:
    virtual ~TraceVisitor() = default;
    /// All kinds but kText and kSite, which the reader keeps. `arguments` are those of kArguments.
    virtual void record(const record::TraceOrigin&, const record::Record&, std::span<const record::Argument> /*arguments*/) {}
    virtual void sample(const record::TraceSample&) {}
    virtual void block(const record::TraceBlock&) {}
};

/// Reads a trace that may be torn, growing, foreign or hostile; memory is bounded by the limits and one frame (16 MiB).
class TraceReader {
public:
    /// Goes through the file once for what records refer to (lanes name texts that other lanes define later). Fails when the file
    /// cannot be opened or does not begin like a trace.
    static base::Result<TraceReader> open(const io::Path& path, const TraceLimits& limits = {});

    /// Goes through what the file held when it was opened.
    base::Status visit(TraceVisitor& visitor) const;

    /// The text of a number in a record of that origin (the lane does not matter); empty when unknown.
    [[nodiscard]] std::string_view text(const record::TraceOrigin& origin, std::uint32_t id) const;
    /// The call stack of Record::site, innermost first; empty when unknown.
    [[nodiscard]] std::vector<record::TraceFrame> site(const record::TraceOrigin& origin, std::uint32_t id) const;
    [[nodiscard]] const std::vector<record::TraceFrame>& stack(std::uint32_t id) const;  ///< of samples; empty when unknown
    [[nodiscard]] std::string_view name(std::uint32_t id) const;                         ///< of samples; empty when unknown

    [[nodiscard]] const std::vector<record::TraceProcess>& processes() const { return processes_; }  ///< by first appearance
    [[nodiscard]] const std::vector<record::TraceClock>& clocks() const { return clocks_; }
    [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }
    [[nodiscard]] const record::LoopTable& loops() const { return loops_; }
    [[nodiscard]] const TraceDamage& damage() const { return damage_; }
    /// From when the first process appeared to when the last ended; of one that goes on, to `latest`. Empty: no process.
    [[nodiscard]] Window run(Time latest) const;
    /// Seconds since 1970 at a moment of the trace, by the nearest pair of clocks; 0 without any.
    [[nodiscard]] double wall(std::uint64_t monotonic) const;

private:
    using Key = std::tuple<std::uint32_t, std::uint16_t, std::uint32_t>;  ///< pid, incarnation, number
    struct KeyHash {
        std::size_t operator()(const Key& key) const {
            const std::uint64_t process = std::uint64_t{std::get<0>(key)} << 16 | std::get<1>(key);
            return std::hash<std::uint64_t>{}(process * 0x9e3779b97f4a7c15u ^
                                              std::uint64_t{std::get<2>(key)} * 0xc2b2ae3d27d4eb4fu);
        }
    };
    class Collector;

    TraceReader() = default;

    io::Path path_;
    std::uint64_t end_ = 0;  ///< of the last frame when it was opened
    std::unordered_map<Key, std::string, KeyHash> texts_;
    std::unordered_map<Key, std::vector<record::SiteFrame>, KeyHash> sites_;
    std::unordered_map<std::uint32_t, std::vector<record::TraceFrame>> stacks_;
    std::unordered_map<std::uint32_t, std::string> names_;
    std::vector<record::TraceProcess> processes_;
    std::vector<record::TraceClock> clocks_;
    std::vector<std::string> notes_;
    record::LoopTable loops_;
    TraceDamage damage_;
};

}  // namespace millrace::diagnose
