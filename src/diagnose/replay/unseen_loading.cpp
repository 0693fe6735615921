#include "diagnose/replay/unseen_loading.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "diagnose/replay/cures.h"
#include "diagnose/replay/pace.h"
#include "diagnose/replay/study.h"
#include "diagnose/timeline/sample_memo.h"

namespace millrace::diagnose {
namespace {

constexpr double kSure = 2;          ///< standard errors
constexpr double kMostHidden = 0.5;  ///< of a recorded step, that may go into loading while the GPU works

struct Look {
    std::uint32_t place = kNoPlace;
    bool loading = false, waiting = false;
    bool elsewhere = false;  ///< not in the loop that a step is a turn of: in an evaluation
};

/// The main thread's samples on one side.
struct SideTally {
    struct Line {
        std::size_t loading = 0, waiting = 0, in_call = 0;
    };
    double step_ms = 0;
    std::map<std::uint32_t, Line> lines;
    std::size_t samples = 0, loading = 0;

    void add(const Look& look, bool in_call) {
        ++samples;
        if (!look.loading) return;
        Line& line = lines[look.place];
        ++loading, ++line.loading;
        line.waiting += look.waiting ? 1 : 0;
        line.in_call += in_call ? 1 : 0;
    }
    /// Of a step, what so many samples stand for.
    [[nodiscard]] double ms(std::size_t count) const {
        return samples > 0 ? static_cast<double>(count) / static_cast<double>(samples) * step_ms : 0;
    }
    /// The square of its standard error; with one sample more of either kind, since few that agree are not sure.
    [[nodiscard]] double variance() const {
        const double all = static_cast<double>(samples + 2), share = static_cast<double>(loading + 1) / all;
        return step_ms * step_ms * share * (1 - share) / all;
    }
};

struct Sides {
    SideTally inside, outside;
};

Sides tally(const Study& study) {
    Sides sides;
    const BlockSpeed speed = speed_of(study.blocks);
    sides.inside.step_ms = study.recorded_ms;
    sides.outside.step_ms = speed.steps > 0 ? speed.ms / speed.steps : 0;
    std::vector<std::pair<Time, Time>> calls;  // of the main thread
    for (const Call& call : study.timeline.calls)
        if (call.process == study.launcher.process && call.thread == study.launcher.main_thread)
            calls.emplace_back(call.begin, call.end);
    std::ranges::sort(calls);
    auto call = calls.begin();
    auto block = study.blocks.begin();
    std::uint64_t loop = 0;
    for (const WindowSteps& window : study.steps) loop = window.loop != 0 ? window.loop : loop;
    SampleMemo<Look> memo;
    const auto look = [&](const Sample& sample) -> Look {
        const auto place = loop != 0 && sample.stack != kNoStack ? place_of(study.timeline, sample.stack) : std::nullopt;
        return {study.places.of_stack(sample.stack), doing_of(study.timeline, sample) == Doing::kLoading,
                is_waiting(study.timeline, sample),
                place && std::ranges::find(place->turns, loop, &record::Turn::loop) == place->turns.end()};
    };
    std::size_t elsewhere = 0;
    for (const Sample& sample : study.timeline.samples) {
        if (!study.is_main(sample)) continue;
        while (call != calls.end() && call->second <= sample.time) ++call;
        while (block != study.blocks.end() && block->end <= sample.time) ++block;
        if (study.trains_at(sample.time))
            sides.inside.add(memo.of(sample, look), call != calls.end() && call->first <= sample.time);
        else if (block != study.blocks.end() && block->begin <= sample.time && memo.of(sample, look).elsewhere)
            ++elsewhere;
        else if (block != study.blocks.end() && block->begin <= sample.time)
            sides.outside.add(memo.of(sample, look), false);
    }
    const auto in_steps = static_cast<double>(sides.outside.samples);
    if (elsewhere > 0) sides.outside.step_ms *= in_steps / (in_steps + static_cast<double>(elsewhere));
    return sides;
}

}  // namespace

std::optional<UnseenLoading> unseen_loading(const Study& study) {
    // Blocks with evaluations in them say nothing of a step, nor do others where the pace is not known.
    if (!study.undisturbed_ms || study.pace_has_evaluation) return std::nullopt;
    const Sides sides = tally(study);
    const SideTally &inside = sides.inside, &outside = sides.outside;
    const double grown = outside.ms(outside.loading) - inside.ms(inside.loading), slower = outside.step_ms - inside.step_ms;
    const double error = std::sqrt(outside.variance() + inside.variance());
    UnseenLoading unseen;
    unseen.ms = std::min(grown, slower);
    if (inside.samples == 0 || unseen.ms <= kPolicy.closes * study.recorded_ms || grown < kSure * error) return std::nullopt;
    const double hidden = inside.ms(inside.loading) - study.gain_of(without_host_work(study, Doing::kLoading));
    if (hidden > kMostHidden * study.recorded_ms) return std::nullopt;
    double most = 0;
    SideTally::Line shown;  // by the windows
    for (const auto& [place, line] : outside.lines) {
        const auto found = inside.lines.find(place);
        const auto before = found == inside.lines.end() ? SideTally::Line{} : found->second;
        const double more = outside.ms(line.loading) - inside.ms(before.loading);
        if (place == kNoPlace || more <= most) continue;
        most = more;
        shown = before;
        unseen.place = place;
        unseen.samples = line.loading;
        unseen.waits = 2 * line.waiting > line.loading;
    }
    // Who copies to the GPU while it loads waits there for kernels, which may have become slower.
    if (unseen.place == kNoPlace || 2 * shown.in_call > shown.loading) return std::nullopt;
    return unseen;
}

std::string remark_of(const UnseenLoading& unseen, const Study& study) {
    return fmt::format(
        "outside of the windows a step {} data {:.1f} ms more than inside, at {}: the cost of `loader-wait` has it",
        unseen.waits ? "waits for" : "loads", unseen.ms, study.places.name(unseen.place));
}

}  // namespace millrace::diagnose
