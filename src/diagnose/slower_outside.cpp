#include "diagnose/slower_outside.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "diagnose/cures.h"
#include "diagnose/findings.h"
#include "diagnose/sample_memo.h"
#include "diagnose/study.h"

namespace millrace::diagnose {
namespace {

constexpr double kSlower = 1.15;           ///< times a step of the windows
constexpr std::size_t kLeastSamples = 20;  ///< of the main thread outside of windows
constexpr double kMostOfIt = 0.5;          ///< of the difference, that a line or loading has to explain to be told of
constexpr double kSure = 2;                ///< standard errors
constexpr double kMostHidden = 0.5;        ///< of a recorded step, that may go into loading while the GPU works

struct Look {
    std::uint32_t place = kNoPlace;
    bool loading = false, waiting = false;
};

/// The main thread's samples on one side.
struct OutsideTally {
    struct Line {
        std::size_t seen = 0, loading = 0;
        std::size_t waiting = 0, in_call = 0;  ///< of those loading
    };
    double step_ms = 0;
    std::map<std::uint32_t, Line> lines;
    std::size_t samples = 0, loading = 0;

    void add(const Look& look, bool in_call) {
        Line& line = lines[look.place];
        ++samples, ++line.seen;
        if (!look.loading) return;
        ++loading, ++line.loading;
        if (look.waiting) ++line.waiting;
        if (in_call) ++line.in_call;
    }
    Line at(std::uint32_t place) const {
        const auto found = lines.find(place);
        return found == lines.end() ? Line{} : found->second;
    }
    /// Of a step, what so many samples stand for.
    double ms(std::size_t count) const {
        return samples > 0 ? static_cast<double>(count) / static_cast<double>(samples) * step_ms : 0;
    }
    /// The square of its standard error; with one sample more of either kind, since few that agree are not sure.
    double variance(std::size_t count) const {
        const double all = static_cast<double>(samples + 2), share = static_cast<double>(count + 1) / all;
        return step_ms * step_ms * share * (1 - share) / all;
    }
};

/// Those of the middle half of all steps, by their pace: others may hold evaluations or a pause.
std::vector<Block> usual_blocks(const std::vector<Block>& blocks) {
    const auto each = [](const Block& block) { return static_cast<double>(block.end - block.begin) / block.steps; };
    std::vector<Block> order;
    double all = 0, passed = 0;
    for (const Block& block : blocks)
        if (block.steps > 0 && block.end > block.begin) order.push_back(block), all += block.steps;
    std::ranges::stable_sort(order, {}, each);
    std::erase_if(order, [&](const Block& block) {
        const double from = passed / all;
        passed += block.steps;
        return passed / all <= 0.25 || from >= 0.75;
    });
    std::ranges::stable_sort(order, {}, &Block::begin);
    return order;
}

double mean_ms(const std::vector<Block>& blocks) {
    double ms = 0, steps = 0;
    for (const Block& block : blocks) ms += static_cast<double>(block.end - block.begin) * 1e-6, steps += block.steps;
    return steps > 0 ? ms / steps : 0;
}

struct Sides {
    OutsideTally inside, outside;
};

Sides tally(const Study& study) {
    Sides sides;
    const std::vector<Block> blocks = usual_blocks(study.blocks);
    sides.inside.step_ms = study.recorded_ms;
    sides.outside.step_ms = mean_ms(blocks);
    std::vector<std::pair<Time, Time>> calls;  // of the main thread
    for (const Call& call : study.timeline.calls)
        if (call.process == study.launcher.process && call.thread == study.launcher.main_thread)
            calls.emplace_back(call.begin, call.end);
    std::ranges::sort(calls);
    auto call = calls.begin();
    auto block = blocks.begin();
    SampleMemo<Look> memo;
    const auto look = [&](const Sample& sample) -> Look {
        return {study.places.of_stack(sample.stack), doing_of(study.timeline, sample) == Doing::kLoading,
                is_waiting(study.timeline, sample)};
    };
    for (const Sample& sample : study.timeline.samples) {
        if (sample.process != study.launcher.process || sample.thread != study.launcher.main_thread) continue;
        while (call != calls.end() && call->second <= sample.time) ++call;
        while (block != blocks.end() && block->end <= sample.time) ++block;
        if (study.trains_at(sample.time))
            sides.inside.add(memo.of(sample, look), call != calls.end() && call->first <= sample.time);
        else if (block != blocks.end() && block->begin <= sample.time)
            sides.outside.add(memo.of(sample, look), false);
    }
    return sides;
}

/// The line for which more of a step goes outside than inside, by `count` of its samples.
std::uint32_t most_grown(const Sides& sides, std::size_t OutsideTally::Line::*count) {
    std::uint32_t most = kNoPlace;
    double grown = 0;
    for (const auto& [place, line] : sides.outside.lines) {
        const double more = sides.outside.ms(line.*count) - sides.inside.ms(sides.inside.at(place).*count);
        if (place != kNoPlace && more > grown) most = place, grown = more;
    }
    return most;
}

/// Milliseconds of a recorded step that go into loading and cost nothing, since the GPU works meanwhile.
double hidden_ms(const Study& study, const OutsideTally& inside) {
    return inside.ms(inside.loading) - study.gain_of(without_host_work(study, Doing::kLoading));
}

void find_loading(const Study& study, const Sides& sides, SlowerOutside& result) {
    const OutsideTally &inside = sides.inside, &outside = sides.outside;
    const double grown = outside.ms(outside.loading) - inside.ms(inside.loading);
    const double error = std::sqrt(outside.variance(outside.loading) + inside.variance(inside.loading));
    if (grown < kMostOfIt * result.more_ms || grown < kSure * error) return;
    const std::uint32_t place = most_grown(sides, &OutsideTally::Line::loading);
    // A loader that copies to the GPU waits there for kernels, and who has nothing else to do waits beside them: these may have
    // become slower.
    if (place == kNoPlace || 2 * inside.at(place).in_call > inside.at(place).loading) return;
    if (hidden_ms(study, inside) > kMostHidden * study.recorded_ms) return;
    result.loading_ms = std::min(grown, result.more_ms);
    result.loading_place = place;
    result.samples = outside.at(place).loading;
    result.waits = 2 * outside.at(place).waiting > outside.at(place).loading;
}

}  // namespace

std::optional<SlowerOutside> slower_outside(const Study& study) {
    const auto pace = study.pace();
    if (!pace || *pace <= kSlower) return std::nullopt;
    SlowerOutside result;
    result.more_ms = (*pace - 1) * study.recorded_ms;
    const Sides sides = tally(study);
    if (sides.outside.samples < kLeastSamples) return result;
    if (const std::uint32_t most = most_grown(sides, &OutsideTally::Line::seen); most != kNoPlace) {
        const OutsideTally::Line line = sides.outside.at(most);
        if (sides.outside.ms(line.seen) - sides.inside.ms(sides.inside.at(most).seen) >= kMostOfIt * result.more_ms) {
            result.place = most;
            result.loads = 2 * line.loading > line.seen;
        }
    }
    find_loading(study, sides, result);
    return result;
}

std::string remark_of(const SlowerOutside& outside, const Study& study, std::span<const Finding> findings) {
    const bool costed =
        outside.loading_ms > 0 && std::ranges::find(findings, Kind::kLoaderWait, &Finding::kind) != findings.end();
    const std::uint32_t place = costed ? outside.loading_place : outside.place;
    std::string where;
    bool found = false;  // the windows show it, and too little of it
    if (place != kNoPlace) {
        const Frame& frame = study.places.frame(place);
        found = std::ranges::any_of(findings, [&](const Finding& finding) {
            return finding.where && finding.where->file == frame.file && finding.where->line == frame.line;
        });
        const char* const doing = costed && outside.waits   ? ", where it waits for data"
                                  : costed || outside.loads ? ", where it loads data"
                                                            : "";
        where = fmt::format(", most of it at {}{}", name_of_place(study, place), doing);
    }
    const char* const shown = costed  ? "the cost of `loader-wait` has it"
                              : found ? "the windows show too little of it"
                                      : "the windows do not show it";
    const char* const advice = study.timeline.presence_share < 1
                                   ? "record without --finalize-cupti for later ones, as CUPTI left after these"
                                   : "a longer recording has later ones";
    return fmt::format("outside of the windows a step takes {:.1f} ms more than inside{}: {}; {}", outside.more_ms, where, shown,
                       advice);
}

}  // namespace millrace::diagnose
