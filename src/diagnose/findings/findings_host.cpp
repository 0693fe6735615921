// What the host does while the GPU idles: waits for batches, writes files, runs Python, launches.

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/units.h"
#include "diagnose/findings/findings.h"

namespace millrace::diagnose {
namespace {

constexpr std::size_t kMostFunctions = 5, kMostLines = 3;

struct Amount {
    double ms = 0;  ///< per step
    std::size_t samples = 0;
    std::map<std::uint32_t, double> lines;  ///< of it, by place
    std::uint32_t place = kNoPlace;         ///< with most of it
    double waiting_ms = 0, wait_most = 0;   ///< of it, asleep; in one system call
    std::uint32_t wait = kNoName;           ///< that one

    void add(std::uint32_t at, double more) {
        ms += more;
        double& line = lines[at];
        line += more;
        if (at != kNoPlace && (place == kNoPlace || line > lines[place])) place = at;
    }
    void add_wait(double more, std::uint32_t name) {
        waiting_ms += more;
        if (more > wait_most) wait_most = more, wait = name;
    }
};

/// Recorded host time of steady steps by function of the user's.
std::map<std::uint32_t, Amount> amounts_of(const Study& study, Doing doing) {
    std::map<std::uint32_t, Amount> amounts;
    std::set<const Portion*> counted;
    study.for_each_portion([&](std::size_t lane, std::uint32_t act, const Portion& portion, double ms) {
        if (portion.doing != doing) return;
        Amount& amount = amounts[study.places.function(portion.place)];
        amount.add(portion.place != kNoPlace ? portion.place : study.host.place_of(lane, act), ms);
        if (counted.insert(&portion).second) amount.samples += portion.samples;
        if (portion.waiting) amount.add_wait(ms, portion.wait);
    });
    return amounts;
}

Amount sum_of(const std::map<std::uint32_t, Amount>& amounts) {
    Amount sum;
    for (const auto& [function, amount] : amounts) {
        sum.samples += amount.samples;
        if (amount.waiting_ms > 0) sum.add_wait(amount.waiting_ms, amount.wait);
        for (const auto& [place, ms] : amount.lines) sum.add(place, ms);
    }
    return sum;
}

/// Of the function with most of it.
std::vector<LineShare> heaviest_lines(const Study& study, const Amount& amount) {
    std::vector<LineShare> lines;
    for (const auto& [place, ms] : amount.lines)
        if (place != kNoPlace && study.places.function(place) == study.places.function(amount.place))
            lines.push_back({study.places.frame(place), ms, std::nullopt});
    std::ranges::stable_sort(lines, std::greater{}, &LineShare::ms);
    if (lines.size() > kMostLines) lines.resize(kMostLines);
    return lines;
}

/// Of host work that its cure takes out.
Finding told(const Chart& chart, Kind kind, const Amount& amount, const Judgement& verdict, Words words) {
    if (amount.ms > 0) words.evidence += fmt::format(" ({} samples)", amount.samples);
    std::vector<LineShare> lines = heaviest_lines(chart.study, amount);
    for (const LineShare& line : lines)
        if (lines.size() > 1)
            words.evidence +=
                fmt::format("{} {:.2f} ms at line {}", &line == &lines.front() ? ", most" : ",", line.ms, line.frame.line);
    words.evidence += fmt::format("; {}.", replayed(verdict, "it"));
    const bool few = amount.ms > 0 && amount.samples < 5;
    Finding finding = chart.finding(kind, amount.place, verdict.lost_ms, std::move(words), few ? 0.7 : 1);
    finding.lines = std::move(lines);
    return finding;
}

/// What a thread waits for in a system call that neither reads nor writes files, and what to do about it.
struct AwaitedThing {
    std::string_view calls;
    const char *does, *fix;
};
constexpr AwaitedThing kAwaited[] = {
    {"clock_nanosleep nanosleep", "sleeps because it asks to",
     "Take the sleep out of the loop; where it waits for something to happen, let another thread do that and hand over the "
     "result."},
    {"futex", "waits for another thread or a lock",
     "Let the thread that it waits for work ahead (a queue with two or more entries), hold locks for shorter, or move that work "
     "to a process: threads that compute in Python hold the interpreter's lock."},
    {"wait4 waitid", "waits for a child process",
     "Start the child process some steps ahead, or collect its result some steps later."},
    {"recvfrom recvmsg sendto sendmsg connect accept4 poll ppoll select pselect6 epoll_wait epoll_pwait",
     "waits for a socket, a pipe or a timer",
     "Fetch what it waits for some steps ahead, on another thread or in loader workers; hand what is to be sent to a thread."},
    {"", "waits for something that is not the GPU", "Let another thread wait for it, some steps ahead."},  // any other
};

Words words_of_work(const Chart& chart, const Amount& amount) {
    if (amount.waiting_ms <= 0.5 * amount.ms)
        return {"The training thread computes on the CPU while the GPU has nothing to do.",
                fmt::format("{:.2f} ms per step of this host work", amount.ms), chart.advice(Topic::kPythonWork),
                "the work can run elsewhere, beside the GPU"};
    // Asleep: there is nothing to compute elsewhere.
    const std::string& call = chart.study.timeline.names[amount.wait];
    const auto* thing = std::ranges::find_if(kAwaited, [&](const AwaitedThing& each) { return is_one_of(call, each.calls); });
    if (thing == std::end(kAwaited)) --thing;
    return {
        fmt::format("The training thread {} while the GPU has nothing to do.", thing->does),
        fmt::format("{:.2f} ms per step in this code, {:.0f} % of it asleep{}", amount.ms, 100 * amount.waiting_ms / amount.ms,
                    call.empty() || call == "other" ? "" : " in the system call " + call),
        thing->fix, "nothing in the step needs to be waited for there"};
}

/// Why batches are late, in a sentence with numbers, and what to do about it.
std::pair<std::string, const char*> loader_reason(const Chart& chart, bool waiting) {
    const Study& study = chart.study;
    if (!waiting)
        return {"The loader has no workers, so nothing is prepared beside the GPU's work: too few workers.",
                chart.advice(Topic::kNoWorkers)};
    const WorkerTally tally = tally_workers(study, true);
    if (tally.total < 5)
        return {"Why the batch was late cannot be told: its makers were not sampled.", chart.advice(Topic::kFewWorkers)};
    const std::size_t workers = tally.workers.size();
    const std::uint32_t processors = study.timeline.processors;
    const auto line_of_chore = [&](Chore chore) {
        const auto places = tally.places.find(chore);
        const std::uint32_t place = places == tally.places.end() ? kNoPlace : key_with_most(places->second);
        return place == kNoPlace ? "" : fmt::format(" ({})", study.places.name(place));
    };
    const double transform = tally.share(Chore::kTransform), read = tally.share(Chore::kRead);
    const double packing = tally.share(Chore::kCollate) + tally.share(Chore::kPickle), busy = transform + read + packing;
    const auto because = [&](const char* why, const char* fix) {
        return std::pair(
            fmt::format("{} worker{}{} {} busy {:.0f} % of the time: {:.0f} % transforming{}, {:.0f} % reading{}, {:.0f} % "
                        "collating and pickling: {}.",
                        workers, workers == 1 ? "" : "s", processors > 0 ? fmt::format(" of {} processors", processors) : "",
                        workers == 1 ? "is" : "are", 100 * busy, 100 * transform, line_of_chore(Chore::kTransform), 100 * read,
                        line_of_chore(Chore::kRead), 100 * packing, why),
            fix);
    };
    if (busy < kPolicy.worker_busy)
        return because("they wait, too, so the batch is late after them", chart.advice(Topic::kIdleWorkers));
    if (read >= transform && read >= packing)
        return because("slow reads", "Read larger pieces from fewer files, keep the data on a local disk, or add workers.");
    if (packing > transform) return because("packing batches is what takes long", chart.advice(Topic::kPacking));
    if (processors == 0 || workers + 1 < processors)
        return because("too few workers for what a sample costs the CPU", chart.advice(Topic::kFewWorkers));
    return because("the CPU has no more to give",
                   "Make the transform cheaper: precompute it, do it for a batch at once, or move it to the GPU.");
}

/// Launches of training steps, not of evaluations between them.
std::vector<std::uint32_t> launches_of(const Study& study, std::size_t lane) {
    std::vector<char> evaluates(study.lanes[lane].calls.size(), 0);
    for (const Step& phase : study.steps[lane].evaluations)
        for (std::uint32_t job = phase.first_job; job < phase.end_job; ++job)
            if (const std::uint32_t act = study.lanes[lane].jobs[job].call; act != kNoIndex) evaluates[act] = 1;
    std::vector<std::uint32_t> launches;
    for (std::uint32_t act = study.steady[lane].first; act < study.steady[lane].second; ++act)
        if (is_launch(study.call(lane, act).kind) && evaluates[act] == 0) launches.push_back(act);
    return launches;
}

double launches_in_step(const Study& study) {
    std::size_t launches = 0;
    for (std::size_t lane = 0; lane < study.lanes.size(); ++lane) launches += launches_of(study, lane).size();
    return study.per_step(static_cast<double>(launches));
}

/// Seen under one stack.
struct Launched {
    std::size_t launches = 0;
    Time time = 0;  ///< of the host, with the framework's way there
};

/// By stacks with frames of the user's. Launches of framework threads are where the main thread was.
std::map<std::uint32_t, Launched> launches_by_stack(const Study& study) {
    std::map<std::uint32_t, Launched> seen;
    for (std::size_t lane = 0; lane < study.lanes.size(); ++lane) {
        bool taken = false;  // stacks are taken in some steps only
        for (const std::uint32_t act : launches_of(study, lane)) {
            const Call& call = study.call(lane, act);
            if (call.thread == study.launcher.main_thread) taken = call.stack != kNoStack;
            const std::uint32_t place = study.host.place_of(lane, act);
            if (!taken || place == kNoPlace) continue;
            Launched& launched = seen[study.places.of_stack(call.stack) == place ? call.stack : study.places.stack_of(place)];
            const Time gap = study.host_gap(lane, act);
            ++launched.launches;
            launched.time += call.end - call.begin + (gap <= kPolicy.launch_gap ? gap : 0);
        }
    }
    return seen;
}

/// The innermost function of the user's under which enough of the launches fall, by its lines, those with most launches first;
/// `callers`: from the line to look at outwards.
std::vector<LineShare> launching_lines(const Study& study, Stack& callers) {
    const auto seen = launches_by_stack(study);
    FrameCounts counts;
    std::size_t total = 0;
    for (const auto& [number, launched] : seen) {
        const Stack& stack = study.timeline.stacks[number];
        total += launched.launches;
        for (std::size_t at = 0; at < stack.size(); ++at)
            if (is_users(stack[at])) counts.add(stack, at, launched.launches);
    }
    const double least = kPolicy.launches_under * static_cast<double>(total);
    const Under* function = counts.function(least);
    if (!function) return {};
    // The innermost line that calls so many, where its function launches through others, too, and so runs in each step: one that
    // does not may just begin the loop.
    const Under* place = nullptr;
    for (const auto& [line, under] : counts.lines)
        if (static_cast<double>(under.count) >= least &&
            under.count < counts.functions.at(function_of(under.spot.frame())).count && (!place || under.depth > place->depth))
            place = &under;
    const Spot from = (place ? place : counts.busiest(*function))->spot;
    callers.assign(from.stack->begin() + static_cast<std::ptrdiff_t>(from.at), from.stack->end());
    std::map<int, LineShare> lines;
    for (const auto& [number, launched] : seen) {
        const Stack& stack = study.timeline.stacks[number];
        const auto frame = std::ranges::find(stack, function_of(function->spot.frame()), function_of);
        if (frame == stack.end()) continue;
        LineShare& line = lines.try_emplace(frame->line, LineShare{*frame, 0, 0.0}).first->second;
        *line.launches += static_cast<double>(launched.launches);
        line.ms += ms_of(launched.time);
    }
    std::vector<LineShare> heaviest;
    for (auto& [number, line] : lines) heaviest.push_back(std::move(line));
    std::ranges::stable_sort(heaviest, std::greater{}, &LineShare::launches);
    if (heaviest.size() > kMostLines) heaviest.resize(kMostLines);
    const double seen_part = static_cast<double>(total) / launches_in_step(study);
    for (LineShare& line : heaviest) line.ms /= seen_part, *line.launches /= seen_part;
    return heaviest;
}

Finding tell_of_launches(const Chart& chart, const Judgement& verdict) {
    const Study& study = chart.study;
    Stack callers;
    std::vector<LineShare> lines = launching_lines(study, callers);
    double busy_ms = 0, jobs = 0;
    study.for_each_job(&WindowSteps::steps,
                       [&](std::size_t, std::uint32_t, const Job& job) { busy_ms += ms_of(job.busy), jobs += 1; });
    Words words{
        "The host cannot launch kernels as fast as the GPU finishes them.",
        fmt::format("{:.0f} launches per step for kernels of {:.1f} us on average; the GPU needs {:.2f} ms for what takes "
                    "{:.2f} ms.",
                    launches_in_step(study), jobs > 0 ? 1e3 * busy_ms / jobs : 0, study.per_step(busy_ms), verdict.before_ms),
        chart.advice(Topic::kLaunches), "the step is launched as a whole and the GPU works without pauses"};
    for (const LineShare& line : lines)
        words.evidence += fmt::format("{} {} launches in {:.2f} ms at line {}", &line == &lines.front() ? " Most are" : ",",
                                      base::print_figures(*line.launches, 3), line.ms, line.frame.line);
    if (!lines.empty()) words.evidence += fmt::format(" of {}.", lines.front().frame.function);
    const double sure = callers.empty() && study.timeline.has_call_stacks ? 0.9 : 1;
    Finding finding = chart.finding(Kind::kLaunchBound, kNoPlace, verdict.lost_ms, std::move(words), sure);
    finding.lines = std::move(lines);
    if (!callers.empty()) finding.where = callers.front();
    finding.stack = std::move(callers);
    return finding;
}

/// All host work of one sort, in whichever function.
void suspect(Chart& chart, Doing doing, Kind kind, Breadth breadth, Cure cure, Words words) {
    const Amount amount = sum_of(amounts_of(chart.study, doing));
    if (amount.ms <= 0 && (doing != Doing::kCollecting || chart.study.timeline.collections.empty())) return;
    words.evidence =
        amount.ms > 0 ? fmt::format("{:.2f} ms {}", amount.ms, words.evidence) : "Collections were seen between launches";
    chart.suspect(kind, breadth, std::move(cure),
                  [=](const Chart& asked, const Judgement& verdict) { return told(asked, kind, amount, verdict, words); });
}

}  // namespace

void find_loader_wait(Chart& chart) {
    const Study& study = chart.study;
    Amount amount = sum_of(amounts_of(study, Doing::kLoading));
    const double pace = ms_of(study.models.front().pace), unseen = study.unseen_loading_ms();
    const bool sets_pace = pace >= kPolicy.loader_pace * study.base_ms;
    bool waiting = 2 * amount.waiting_ms >= amount.ms;  // or, where nothing was seen, for workers that are only just fast enough
    if (const auto most = amount.lines.find(amount.place); unseen > (most == amount.lines.end() ? 0 : most->second))
        amount.place = study.unseen->place, waiting = study.unseen->waits;
    if (unseen > 0) amount.samples += study.unseen->samples;
    if (sets_pace && chart.share(amount.ms + unseen) < kPolicy.band(Kind::kLoaderWait).warn)
        chart.remarks.push_back(
            fmt::format("the loader's workers need {:.2f} ms for a batch: no step can be shorter, whatever else is cured", pace));
    if (amount.ms <= 0 && unseen <= 0 && !sets_pace) return;
    const auto tell = [amount, unseen, waiting](const Chart& asked, const Judgement& verdict) {
        const auto [reason, fix] = loader_reason(asked, waiting);
        const std::string more =
            unseen > 0 ? fmt::format(", and {:.2f} ms more outside of the windows, by samples of it there", unseen) : "";
        Words words{"The GPU idles while the training thread loads the next batch itself.",
                    fmt::format("{:.2f} ms per step go into loading{}", amount.ms, more), fix, "batches are always ready"};
        if (waiting) {
            words.what = "The GPU idles because the next batch is not ready.";
            words.evidence = fmt::format("{:.2f} ms per step the training thread sleeps in the loader{}", amount.ms, more);
        }
        Finding finding = told(asked, Kind::kLoaderWait, amount, verdict, std::move(words));
        finding.evidence += " " + reason;
        return finding;
    };
    chart.suspect(Kind::kLoaderWait, Breadth::kCall, without_host_work(study, Doing::kLoading), tell, nullptr, unseen);
}

void find_host_work(Chart& chart) {
    const Study& study = chart.study;
    suspect(chart, Doing::kReading, Kind::kHostSync, Breadth::kCall, without_host_work(study, Doing::kReading),
            {kHostWaits, "per step the host is asleep until the device has a value", chart.advice(Topic::kRead),
             "the value is not needed to decide what to launch next"});
    suspect(chart, Doing::kWriting, Kind::kFileOutput, Breadth::kWork, without_writing(chart.roles),
            {"The training thread writes files or logs while the GPU has nothing to do.", "per step go into writing",
             "Write less often, or hand what is to be written to a thread (copy it to pinned memory without waiting first).",
             "writing can happen beside the GPU's work"});
    suspect(chart, Doing::kCollecting, Kind::kPythonWork, Breadth::kWork, without_collections(study),
            {"Python's garbage collector runs inside the steps while the GPU idles.", "per step in the collector",
             "Collect less often: `gc.collect(); gc.freeze()` before the loop leaves out what stays, `gc.disable()` in it keeps "
             "the collector from starting by itself, and `gc.collect()` every thousand steps does what is left.",
             "the objects can wait"});
    const auto amounts = amounts_of(study, Doing::kComputing);
    std::vector<std::pair<double, std::uint32_t>> order;
    for (const auto& [function, amount] : amounts)
        if (function != 0) order.emplace_back(amount.ms, function);
    std::ranges::sort(order, std::greater{});
    const auto suspect_function = [&](Breadth breadth, std::uint32_t function, const Amount& amount) {
        chart.suspect(Kind::kPythonWork, breadth, without_host_work(study, Doing::kComputing, function),
                      [amount](const Chart& asked, const Judgement& verdict) {
                          return told(asked, Kind::kPythonWork, amount, verdict, words_of_work(asked, amount));
                      });
    };
    for (std::size_t i = 0; i < std::min(kMostFunctions, order.size()); ++i)
        suspect_function(Breadth::kWork, order[i].second, amounts.at(order[i].second));
    if (!amounts.empty()) suspect_function(Breadth::kRest, 0, sum_of(amounts));
    chart.suspect(Kind::kLaunchBound, Breadth::kLaunches, without_launches(chart.roles), tell_of_launches);
}

}  // namespace millrace::diagnose
