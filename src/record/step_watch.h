#pragma once
// What a window shows of a program's steps while it is open: how long they are, and which call could count them cheaply once it
// is closed. Fed with the records of one process in any order; pure, no clock.

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "record/probe_records.h"
#include "record/step_finder.h"

namespace millrace::record {

/// Calls of one kind by which steps can be counted.
struct CountedCall {
    CallKind call = CallKind::kOther;  ///< kOther: there is none
    std::uint32_t per_step = 0;
    std::uint32_t site = 0;  ///< at which they are counted, so that others do not count, an evaluation's; 0: any
};

struct StepFacts {
    std::uint64_t launches_per_step = 0;
    std::uint64_t steps = 0;         ///< seen in the window
    std::uint64_t steady_steps = 0;  ///< in the stretch that reaches the newest launch, with forgotten ones; 0: it is over
    double step_ns = 0;              ///< median, as recorded
    CountedCall pulse{};             ///< the rarest kind of call that comes equally often in (nearly) every step
    CountedCall led{};               ///< the same among calls that can be counted without CUPTI (kLedCall)
    bool graphs = false;             ///< graphs are launched
    StepSource source = StepSource::kNone;
    /// Steps that have an update, or launches of autograd's threads, and those that have none, as far as that can be told.
    std::uint64_t training = 0, idle = 0;
    bool trains = false;  ///< nearly every step does
    /// At pulse.site, from the first step's begin to the newest one's, whatever stands between steps.
    std::uint64_t calls_at_site = 0;
    std::size_t pulse_depth = 0;  ///< innermost frames of pulse.site, with the one that has the loop; 0: it is not known
    std::vector<std::uint32_t> pulse_apart{};  ///< other sites of that kind, in steps that lack this one
};

class StepWatch {
public:
    /// Remembers at most so many launches and four times as many calls, the newest.
    explicit StepWatch(std::size_t capacity = std::size_t{1} << 17) : capacity_(capacity) {}

    /// Takes kCall, kWork, kRange and, of which `parts` is what stands in the slots behind, kText and kSite; passes over the
    /// rest.
    void add(const Record& record, std::span<const Record> parts = {});
    /// A new window begins. Names and sites stay.
    void clear();

    /// Absent as long as nothing repeats. Looks again only when the launches have grown by an eighth since the last time, or when
    /// more than a fifth of a second has passed by the calls' clock (more where more is remembered): a program that launched
    /// kernel by kernel may go on with one graph per step.
    /// `loops`: of the functions that samples have seen so far; null where there are no samples. What merely returns is told late
    /// while they may still show the loop.
    const std::optional<StepFacts>& facts(const LoopTable* loops = nullptr);
    [[nodiscard]] std::uint64_t launches() const { return launches_seen_; }
    /// Something was updated, or computed backward, in any window.
    [[nodiscard]] bool trained() const { return trained_; }
    /// Where these calls come equally often in a step, they are what is counted.
    void prefer(CallKind kind, std::uint32_t site) { preferred_.emplace(kind, site), preferred_kind_ = kind; }
    void prefer_none() { preferred_.clear(); }
    /// Whether the innermost `depth` frames of two sites (one, where that is 0) are at the same lines.
    [[nodiscard]] bool is_like(std::uint32_t one, std::uint32_t other, std::size_t depth) const;
    /// The thread with most launches; 0 unknown. Survives clear().
    [[nodiscard]] std::uint32_t main_thread() const;

private:
    struct Launch {
        std::uint32_t correlation = 0;
        std::uint64_t element = 0;
        bool graph = false;
    };
    struct Call {
        std::uint64_t begin = 0;
        std::uint32_t thread = 0, correlation = 0, site = 0;
        CallKind kind = CallKind::kOther;
        bool led = false;
    };
    void add_call(const Record& record);
    void add_launch(std::uint32_t correlation, std::uint64_t element, bool graph);
    [[nodiscard]] std::optional<StepFacts> look(const LoopTable* loops);
    [[nodiscard]] StepInput input(const LoopTable& loops) const;
    [[nodiscard]] bool may_see_loops(const StepInput& input) const;
    [[nodiscard]] std::optional<StepPlace> place_of_site(std::uint32_t site, const LoopTable& loops) const;
    [[nodiscard]] std::size_t depth_of(std::uint32_t site, std::uint64_t loop, const LoopTable* loops) const;
    void choose_pulse(const std::vector<std::uint64_t>& starts, bool led, StepFacts& facts) const;

    const std::size_t capacity_;
    std::vector<Launch> launches_;
    std::vector<Call> calls_;
    std::vector<Record> ranges_;
    std::unordered_map<std::uint32_t, std::string> texts_;
    std::unordered_map<std::uint32_t, std::vector<SiteFrame>> sites_;
    std::unordered_map<std::uint32_t, std::uint64_t> threads_;
    std::set<std::pair<CallKind, std::uint32_t>> preferred_;
    CallKind preferred_kind_ = CallKind::kOther;
    bool trained_ = false;
    std::uint64_t launches_seen_ = 0, looked_at_ = 0;
    std::uint64_t newest_call_ = 0, looked_until_ = 0;  ///< times
    std::uint32_t newest_work_ = 0;                     ///< greatest correlation of a kernel that is known
    bool launches_kernels_ = false;
    std::size_t loops_seen_ = 0;
    std::optional<StepFacts> facts_;
};

}  // namespace millrace::record
