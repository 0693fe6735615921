// Work that gives the same result in every step: uploads of the same bytes, kernels that compute a constant.

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/units.h"
#include "diagnose/findings/findings.h"
#include "diagnose/reading/kernel_parameters.h"

namespace millrace::diagnose {
namespace {

/// The framework's kernels whose first pointer is what they write and whose others they read.
bool writes_first_pointer(std::string_view name) {
    // Random numbers, and kernels that read or write where other data says.
    constexpr std::string_view kOthers =
        "distribution philox random dropout bernoulli index_elementwise index_put index_kernel scatter gather";
    return !contains_any(name, kOthers) && contains_any(name, "elementwise_kernel triu_tril_kernel CatArrayBatchedCopy arange");
}

using Given = std::vector<const Arguments*>;  ///< of the jobs of a step; null: not taken

/// Which jobs of one step compute constants out of constants. `same` tells whether position i has the same parameters as in the
/// step before.
std::vector<char> constant_jobs(const Study& study, std::size_t lane, const Step& step, const Given& given,
                                const std::vector<char>& same) {
    struct Maker {
        std::uint32_t job = 0;
        int depth = 0;
    };
    // Of buffers that hold a constant. Buffers are known by their first byte alone: a write between two of them may be one into
    // the lower one.
    std::map<std::uint64_t, Maker> makers;
    std::vector<char> chosen(given.size(), 0);
    for (std::uint32_t i = 0; i < chosen.size(); ++i) {
        const Job& job = study.lanes[lane].jobs[step.first_job + i];
        const Work& work = study.timeline.work[job.first_work];
        const bool known = work.kind == WorkKind::kKernel && job.more_work.empty() && given[i] && !given[i]->pointers.empty() &&
                           writes_first_pointer(study.timeline.names[work.name]);
        if (!known) {
            makers.clear();  // it may write anywhere
            continue;
        }
        const std::uint64_t output = given[i]->pointers.front();
        // What framework threads do (backward) is not the user's to hoist.
        bool constant = same[i] != 0 && job.call != kNoIndex && study.call(lane, job.call).thread == study.launcher.main_thread;
        int depth = 0;
        std::vector<std::uint32_t> inputs;
        for (std::size_t p = 1; p < given[i]->pointers.size() && constant; ++p) {
            const auto maker = makers.find(given[i]->pointers[p]);
            constant = maker != makers.end();
            if (constant) depth = std::max(depth, maker->second.depth), inputs.push_back(maker->second.job);
        }
        if (constant) {
            makers[output] = {i, depth + 1};
            // A buffer that is merely filled may be meant to be written later; what was computed from it is a table.
            chosen[i] = depth > 0;
            for (const std::uint32_t input : inputs) chosen[input] = chosen[input] || depth > 0;
        } else if (const auto above = makers.upper_bound(output); above != makers.begin()) {
            makers.erase(std::prev(above));
        }
    }
    return chosen;
}

/// Both launch kernels of the same names.
bool alike(const Study& study, std::size_t lane, const Step& a, const Step& b) {
    const auto name = [&](const Job& job) { return study.timeline.work[job.first_work].name; };
    return std::ranges::equal(study.jobs_in(lane, a), study.jobs_in(lane, b), {}, name, name);
}

/// Positions whose parameters (without pointers) are the same in both steps.
std::vector<char> same_parameters(const Given& one, const Given& other) {
    std::vector<char> same(one.size(), 0);
    for (std::size_t i = 0; i < same.size(); ++i)
        same[i] = one[i] && other[i] && one[i]->rest == other[i]->rest && one[i]->pointers.size() == other[i]->pointers.size();
    return same;
}

Given given_in(const Study& study, std::size_t lane, const Step& step) {
    Given given;
    for (const Job& job : study.jobs_in(lane, step)) {
        const Work& work = study.timeline.work[job.first_work];
        given.push_back(arguments_of(study.timeline, work.process, work.correlation));
    }
    return given;
}

struct Repeated {
    std::vector<std::vector<std::uint32_t>> jobs;  ///< per lane
    std::size_t compared = 0;                      ///< pairs of steps
};

Repeated repeated_kernels(const Study& study) {
    Repeated found;
    for (std::size_t lane = 0; lane < study.lanes.size(); ++lane) {
        found.jobs.emplace_back();
        const std::vector<Step>& steps = study.steps[lane].steps;
        std::vector<std::size_t> votes;  // by position in a step
        std::size_t pairs = 0;
        const Step* reference = nullptr;
        std::vector<Given> given;
        std::vector<std::size_t> taken;  // taking them begins and ends within a step
        for (const Step& step : steps) {
            given.push_back(given_in(study, lane, step));
            taken.push_back(given.back().size() - static_cast<std::size_t>(std::ranges::count(given.back(), nullptr)));
        }
        for (std::size_t i = 1; i < steps.size(); ++i) {
            if (std::min(taken[i - 1], taken[i]) < std::ranges::max(taken) || !alike(study, lane, steps[i - 1], steps[i]))
                continue;
            const auto same = same_parameters(given[i - 1], given[i]);
            if (std::ranges::find(same, 1) == same.end()) continue;
            ++pairs;
            reference = &steps[i];
            const std::vector<char> constant = constant_jobs(study, lane, steps[i], given[i], same);
            votes.resize(std::max(votes.size(), constant.size()));
            for (std::size_t at = 0; at < constant.size(); ++at) votes[at] += constant[at] != 0 ? 1 : 0;
        }
        found.compared += pairs;
        if (pairs < 2) continue;
        for (const Step& step : steps) {
            if (!alike(study, lane, *reference, step)) continue;
            for (std::uint32_t at = 0; at < votes.size(); ++at)
                if (static_cast<double>(votes[at]) >= kPolicy.repeated_steps * static_cast<double>(pairs))
                    found.jobs.back().push_back(step.first_job + at);
        }
    }
    return found;
}

/// The user's line under which most of these jobs' time falls.
std::uint32_t heaviest_place(const Study& study, const std::vector<std::vector<std::uint32_t>>& jobs, double& ms, double& count) {
    std::map<std::uint32_t, double> times;
    for (std::size_t lane = 0; lane < jobs.size(); ++lane)
        for (std::uint32_t index : jobs[lane]) {
            const Job& job = study.lanes[lane].jobs[index];
            const double more = study.per_step(ms_of(job.end - job.begin));
            ms += more;
            count += study.per_step(1);
            times[study.place_of(lane, job)] += more;
        }
    return key_with_most(times);
}

struct Uploads {
    std::vector<std::vector<std::uint32_t>> jobs;  ///< per lane
    double bytes = 0;                              ///< per step
    std::size_t same = 0, pairs = 0;               ///< steps with the content of the step before, of how many
    std::uint64_t last = 0;                        ///< content of the last; 0 not taken
    std::size_t last_lane = 0;
};

bool is_upload(const Call& call) {
    const bool copies = call.kind == CallKind::kCopy || call.kind == CallKind::kCopyAsync;
    return copies && call.to == MemoryKind::kDevice && call.from != MemoryKind::kDevice;
}

/// Line, how many of it came before in the step, bytes.
using UploadKey = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>;

/// Contents are taken in some steps of a window only; what is sent in the others under the same key is taken for the same.
std::map<UploadKey, Uploads> uploads_of(const Study& study) {
    std::map<UploadKey, Uploads> all;
    for (std::size_t lane = 0; lane < study.lanes.size(); ++lane)
        for (const Step& step : study.steps[lane].steps) {
            std::map<std::uint32_t, std::uint32_t> ordinal;
            for (std::uint32_t index = step.first_job; index < step.end_job; ++index) {
                const Job& job = study.lanes[lane].jobs[index];
                if (job.call == kNoIndex || !is_upload(study.call(lane, job.call))) continue;
                const Call& call = study.call(lane, job.call);
                const std::uint32_t place = study.host.place_of(lane, job.call);
                const std::uint64_t size = std::max(call.bytes, study.timeline.work[job.first_work].bytes);
                Uploads& uploads = all[{place, ordinal[place]++, size}];
                uploads.jobs.resize(study.lanes.size());
                if (call.content != 0 && uploads.last != 0 && uploads.last_lane == lane) {
                    ++uploads.pairs;
                    uploads.same += uploads.last == call.content ? 1 : 0;
                }
                uploads.last = call.content;
                uploads.last_lane = lane;
                uploads.bytes += study.per_step(static_cast<double>(size));
                uploads.jobs[lane].push_back(index);
            }
        }
    return all;
}

/// By line, those that repeat.
std::map<std::uint32_t, Uploads> repeated_uploads(const Study& study) {
    std::map<std::uint32_t, Uploads> by_place;
    for (const auto& [key, uploads] : uploads_of(study)) {
        if (uploads.pairs < 3 || static_cast<double>(uploads.same) < kPolicy.repeated_steps * static_cast<double>(uploads.pairs))
            continue;
        Uploads& repeated = by_place[std::get<0>(key)];
        repeated.jobs.resize(study.lanes.size());
        repeated.bytes += uploads.bytes;
        for (std::size_t lane = 0; lane < uploads.jobs.size(); ++lane)
            repeated.jobs[lane].insert(repeated.jobs[lane].end(), uploads.jobs[lane].begin(), uploads.jobs[lane].end());
    }
    return by_place;
}

}  // namespace

void find_repeated_work(Chart& chart) {
    const Study& study = chart.study;
    for (const auto& [place, uploads] : repeated_uploads(study)) {
        std::vector<Cure> cures{without_jobs(study, uploads.jobs)};
        // The waits that come with such copies go with them.
        for (const auto* sites : {&chart.roles.pageable, &chart.roles.syncs})
            for (const Site& site : *sites)
                if (site.place == place && place != kNoPlace) cures.push_back(without_waits(chart.roles, site));
        const Cure cure = all_of(std::move(cures));
        if (chart.share(study.gain_of(cure)) < kAny.warn) continue;
        const auto tell = [place = place, bytes = uploads.bytes](const Chart& asked, const Judgement& verdict) {
            return asked.finding(
                Kind::kRepeatedWork, place, verdict.lost_ms,
                {"The same bytes are uploaded again in every step.",
                 fmt::format("{:.2f} MB per step with content that did not change from one step to the next.", bytes * 1e-6),
                 "Upload it once before the loop and keep it on the GPU.", "it fits in memory"});
        };
        chart.suspect(Kind::kRepeatedWork, Breadth::kCall, cure, tell);
        chart.repeated_places.push_back(place);
    }
    if (study.timeline.arguments.empty())
        return chart.remarks.push_back("repeated kernels were not looked for: the recording has no launch parameters");
    const Repeated repeated = repeated_kernels(study);
    if (repeated.compared < 2)
        return chart.remarks.push_back("repeated kernels were not looked for: launch parameters are missing in most steps");
    double ms = 0, count = 0;
    const std::uint32_t place = heaviest_place(study, repeated.jobs, ms, count);
    if (ms == 0) return;
    const auto tell = [place, ms, count, compared = repeated.compared](const Chart& asked, const Judgement& verdict) {
        return asked.finding(
            Kind::kRepeatedWork, place, verdict.lost_ms,
            {"The same table is computed again in every step: no data, parameter or random number goes into it.",
             fmt::format("{} kernels per step ({:.2f} ms) have the same parameters in {} pairs of steps and read only what such "
                         "kernels wrote.",
                         base::print_figures(count, 3), ms, compared),
             asked.advice(Topic::kConstant), "the table fits in memory"},
            compared < 4 ? 0.8 : 1);
    };
    chart.suspect(Kind::kRepeatedWork, Breadth::kCall, without_jobs(study, repeated.jobs), tell);
}

}  // namespace millrace::diagnose
