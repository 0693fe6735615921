#include "diagnose/slower_outside.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "diagnose/findings.h"
#include "diagnose/study.h"

namespace millrace::diagnose {
namespace {

constexpr double kSlower = 1.15;           ///< times a step of the windows
constexpr std::size_t kLeastSamples = 20;  ///< of the main thread outside of windows
constexpr double kMostOfIt = 0.5;          ///< of the difference, that a line has to explain to be named

/// The main thread's samples by line.
struct Tally {
    struct Line {
        std::size_t seen = 0, loading = 0, waiting = 0;  ///< loading: of those seen; waiting: of those loading
    };
    std::map<std::uint32_t, Line> lines;
    std::size_t samples = 0;

    void add(const Study& study, const Sample& sample) {
        Line& line = lines[study.places.of_stack(sample.stack)];
        ++samples, ++line.seen;
        if (doing_of(study.timeline, sample) != Doing::kLoading) return;
        ++line.loading;
        if (is_waiting(study.timeline, sample)) ++line.waiting;
    }
    double share(std::uint32_t place) const {
        const auto found = lines.find(place);
        return found == lines.end() ? 0 : static_cast<double>(found->second.seen) / static_cast<double>(samples);
    }
};

bool is_inside(const Study& study, Time time) {
    return std::ranges::any_of(study.steps, [&](const WindowSteps& window) {
        return !window.steps.empty() && window.steps.front().begin <= time && time < window.steps.back().end;
    });
}

std::string file_of(const Frame& frame) { return fmt::format("{}:{}", frame.file, frame.line); }

}  // namespace

std::optional<SlowerOutside> slower_outside(const Study& study) {
    const auto pace = study.pace();
    if (!pace || *pace <= kSlower) return std::nullopt;
    SlowerOutside result;
    const double inside_ms = study.recorded_ms, outside_ms = *pace * inside_ms;
    result.more_ms = outside_ms - inside_ms;
    Tally inside, outside;
    auto block = study.blocks.begin();
    for (const Sample& sample : study.timeline.samples) {
        if (sample.process != study.launcher.process || sample.thread != study.launcher.main_thread) continue;
        while (block != study.blocks.end() && block->end <= sample.time) ++block;
        if (block != study.blocks.end() && block->begin <= sample.time)
            outside.add(study, sample);
        else if (is_inside(study, sample.time))
            inside.add(study, sample);
    }
    if (outside.samples < kLeastSamples) return result;
    const auto grown = [&](std::uint32_t place) { return outside.share(place) * outside_ms - inside.share(place) * inside_ms; };
    std::uint32_t most = kNoPlace;
    for (const auto& [place, line] : outside.lines)
        if (place != kNoPlace && (most == kNoPlace || grown(place) > grown(most))) most = place;
    if (most == kNoPlace || grown(most) < kMostOfIt * result.more_ms) return result;
    const Tally::Line& line = outside.lines[most];
    result.place = most;
    result.samples = line.seen;
    result.loads = 2 * line.loading > line.seen;
    result.waits = 2 * line.waiting > line.loading;
    if (result.loads) result.loading_ms = std::min(grown(most), result.more_ms);
    return result;
}

std::string remark_of(const SlowerOutside& outside, const Study& study, std::span<const Finding> findings) {
    std::string where;
    bool found = false;  // the windows show it, and too little of it
    if (outside.place != kNoPlace) {
        const std::string line = file_of(study.places.frame(outside.place));
        found = std::ranges::any_of(findings,
                                    [&](const Finding& finding) { return finding.where && file_of(*finding.where) == line; });
        where = fmt::format(", most of it at {}{}", name_of_place(study, outside.place),
                            !outside.loads  ? ""
                            : outside.waits ? ", where it waits for data"
                                            : ", where it loads data");
    }
    const char* const shown = outside.loading_ms > 0 ? "the cost of `loader-wait` has it"
                              : found                ? "the windows show too little of it"
                                                     : "the windows do not show it";
    const char* const advice = study.timeline.presence_share < 1
                                   ? "record with --every 500 for later ones, as CUPTI left after these"
                                   : "a longer recording has later ones";
    return fmt::format("outside of the windows a step takes {:.1f} ms more than inside{}: {}; {}", outside.more_ms, where, shown,
                       advice);
}

}  // namespace millrace::diagnose
