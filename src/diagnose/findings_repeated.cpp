// Work that gives the same result in every step: uploads of the same bytes, kernels that compute a constant.

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <unordered_map>

#include "base/units.h"
#include "diagnose/findings.h"

namespace millrace::diagnose {
namespace {

/// The framework's kernels whose first pointer is what they write and whose others they read.
bool writes_first_pointer(std::string_view name) {
    // Random numbers, and kernels that read or write where other data says.
    constexpr std::array<std::string_view, 10> kOthers{"distribution",      "philox",    "random",       "dropout", "bernoulli",
                                                       "index_elementwise", "index_put", "index_kernel", "scatter", "gather"};
    for (std::string_view part : kOthers)
        if (name.find(part) != std::string_view::npos) return false;
    constexpr std::array<std::string_view, 4> kKnown{"elementwise_kernel", "triu_tril_kernel", "CatArrayBatchedCopy", "arange"};
    return std::any_of(kKnown.begin(), kKnown.end(),
                       [&](std::string_view part) { return name.find(part) != std::string_view::npos; });
}

class ArgumentIndex {
public:
    explicit ArgumentIndex(const Timeline& timeline) : timeline_(timeline) {
        for (std::uint32_t i = 0; i < timeline.arguments.size(); ++i)
            index_[(std::uint64_t{timeline.arguments[i].process} << 32) | timeline.arguments[i].correlation] = i;
    }
    const Arguments* of(const Work& work) const {
        auto found = index_.find((std::uint64_t{work.process} << 32) | work.correlation);
        return work.correlation == 0 || found == index_.end() ? nullptr : &timeline_.arguments[found->second];
    }

private:
    const Timeline& timeline_;
    std::unordered_map<std::uint64_t, std::uint32_t> index_;
};

/// Which buffers hold a constant at a moment of the step. Buffers are known by their first byte alone: a write between two of
/// them may be a write into the lower one.
class Constants {
public:
    struct Maker {
        std::uint32_t job = 0;
        int depth = 0;
    };
    const Maker* of(std::uint64_t pointer) const {
        auto found = makers_.find(pointer);
        return found == makers_.end() ? nullptr : &found->second;
    }
    void made(std::uint64_t pointer, Maker maker) { makers_[pointer] = maker; }
    void spoiled(std::uint64_t pointer) {
        auto above = makers_.upper_bound(pointer);
        if (above != makers_.begin()) makers_.erase(std::prev(above));
    }
    void forget() { makers_.clear(); }

private:
    std::map<std::uint64_t, Maker> makers_;
};

/// Jobs of one step (positions in it) that compute constants out of constants. `same` tells whether position i has the same
/// parameters as in the step before.
std::vector<std::uint32_t> constant_jobs(const Study& study, std::size_t lane, const Step& step, const ArgumentIndex& arguments,
                                         const std::vector<char>& same) {
    Constants constants;
    std::vector<char> chosen(step.end_job - step.first_job, 0);
    for (std::uint32_t i = 0; i < chosen.size(); ++i) {
        const Job& job = study.lanes[lane].jobs[step.first_job + i];
        const Work& work = study.timeline.work[job.first_work];
        const Arguments* given = work.kind == WorkKind::kKernel && job.more_work.empty() ? arguments.of(work) : nullptr;
        const bool known = given && !given->pointers.empty() && writes_first_pointer(study.timeline.names[work.name]);
        if (!known) {
            constants.forget();  // it may write anywhere
            continue;
        }
        const std::uint64_t output = given->pointers.front();
        // What framework threads do (backward) is not the user's to hoist.
        const bool own = job.call != kNoIndex && study.call(lane, job.call).thread == study.launcher.main_thread;
        int depth = 0;
        bool constant = same[i] != 0 && own;
        std::vector<std::uint32_t> makers;
        for (std::size_t p = 1; p < given->pointers.size() && constant; ++p) {
            const Constants::Maker* maker = constants.of(given->pointers[p]);
            constant = maker != nullptr;
            if (maker) depth = std::max(depth, maker->depth), makers.push_back(maker->job);
        }
        if (!constant) {
            constants.spoiled(output);
            continue;
        }
        constants.made(output, {i, depth + 1});
        // A buffer that is merely filled may be meant to be written later; what was computed from it is a table.
        if (depth > 0) {
            chosen[i] = 1;
            for (std::uint32_t maker : makers) chosen[maker] = 1;
        }
    }
    std::vector<std::uint32_t> positions;
    for (std::uint32_t i = 0; i < chosen.size(); ++i)
        if (chosen[i]) positions.push_back(i);
    return positions;
}

bool alike(const Study& study, std::size_t lane, const Step& a, const Step& b) {
    if (a.end_job - a.first_job != b.end_job - b.first_job) return false;
    for (std::uint32_t i = 0; i < a.end_job - a.first_job; ++i) {
        const auto& jobs = study.lanes[lane].jobs;
        if (study.timeline.work[jobs[a.first_job + i].first_work].name !=
            study.timeline.work[jobs[b.first_job + i].first_work].name)
            return false;
    }
    return true;
}

/// Positions whose parameters (without pointers) are the same in both steps.
std::vector<char> same_parameters(const Study& study, std::size_t lane, const Step& a, const Step& b,
                                  const ArgumentIndex& arguments) {
    std::vector<char> same(a.end_job - a.first_job, 0);
    const auto& jobs = study.lanes[lane].jobs;
    for (std::uint32_t i = 0; i < same.size(); ++i) {
        const Arguments* one = arguments.of(study.timeline.work[jobs[a.first_job + i].first_work]);
        const Arguments* other = arguments.of(study.timeline.work[jobs[b.first_job + i].first_work]);
        same[i] = one && other && one->rest == other->rest && one->pointers.size() == other->pointers.size() ? 1 : 0;
    }
    return same;
}

/// Of each step, how many of its jobs have parameters. Taking them begins and ends within a step.
std::vector<std::size_t> parameters_taken(const Study& study, std::size_t lane, const ArgumentIndex& arguments) {
    std::vector<std::size_t> taken;
    for (const Step& step : study.steps[lane].steps) {
        taken.push_back(0);
        for (std::uint32_t job = step.first_job; job < step.end_job; ++job)
            taken.back() += arguments.of(study.timeline.work[study.lanes[lane].jobs[job].first_work]) ? 1 : 0;
    }
    return taken;
}

struct Repeated {
    std::vector<std::vector<std::uint32_t>> jobs;  ///< per lane
    std::size_t compared = 0;                      ///< pairs of steps
};

Repeated repeated_kernels(const Study& study) {
    const ArgumentIndex arguments(study.timeline);
    Repeated found;
    for (std::size_t lane = 0; lane < study.lanes.size(); ++lane) {
        found.jobs.emplace_back();
        const std::vector<Step>& steps = study.steps[lane].steps;
        std::map<std::uint32_t, std::size_t> votes;
        std::size_t pairs = 0;
        const Step* reference = nullptr;
        const auto taken = parameters_taken(study, lane, arguments);
        const std::size_t all = taken.empty() ? 0 : *std::max_element(taken.begin(), taken.end());
        for (std::size_t i = 1; i < steps.size(); ++i) {
            if (taken[i - 1] < all || taken[i] < all) continue;
            if (!alike(study, lane, steps[i - 1], steps[i])) continue;
            const auto same = same_parameters(study, lane, steps[i - 1], steps[i], arguments);
            if (std::find(same.begin(), same.end(), 1) == same.end()) continue;
            ++pairs;
            reference = &steps[i];
            for (std::uint32_t position : constant_jobs(study, lane, steps[i], arguments, same)) ++votes[position];
        }
        found.compared += pairs;
        if (pairs < 2) continue;
        for (const Step& step : steps) {
            if (!alike(study, lane, *reference, step)) continue;
            for (const auto& [position, count] : votes)
                if (static_cast<double>(count) >= study.policy.repeated_steps * static_cast<double>(pairs))
                    found.jobs.back().push_back(step.first_job + position);
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
            ms += static_cast<double>(job.end - job.begin) * 1e-6 / static_cast<double>(study.step_count);
            count += 1 / static_cast<double>(study.step_count);
            // Lines are taken in some steps only; the others' calls have the last place that was known, which may be another.
            if (job.call != kNoIndex && study.call(lane, job.call).stack != kNoStack)
                times[study.host.place_of(lane, job.call)] += static_cast<double>(job.end - job.begin);
        }
    return place_with_most(times);
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

using UploadKey =
    std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>;  ///< line, how many of it came before in the step, bytes

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
                uploads.bytes += static_cast<double>(size) / static_cast<double>(study.step_count);
                uploads.jobs[lane].push_back(index);
            }
        }
    return all;
}

/// By line, those that repeat.
std::map<std::uint32_t, Uploads> repeated_uploads(const Study& study) {
    std::map<std::uint32_t, Uploads> by_place;
    for (const auto& [key, uploads] : uploads_of(study)) {
        if (uploads.pairs < 3 ||
            static_cast<double>(uploads.same) < study.policy.repeated_steps * static_cast<double>(uploads.pairs))
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

void find_repeated_kernels(Chart& chart) {
    const Study& study = chart.study;
    if (study.timeline.arguments.empty()) {
        chart.remarks.push_back("repeated kernels were not looked for: the recording has no launch parameters");
        return;
    }
    const Repeated repeated = repeated_kernels(study);
    if (repeated.compared < 2) {
        chart.remarks.push_back("repeated kernels were not looked for: launch parameters are missing in most steps");
        return;
    }
    double ms = 0, count = 0;
    const std::uint32_t place = heaviest_place(study, repeated.jobs, ms, count);
    if (ms == 0) return;
    const auto tell = [&chart, place, ms, count, compared = repeated.compared](const Judgement& verdict) {
        Finding finding = chart.finding(Kind::kRepeatedWork, place, verdict.lost_ms, chart.study.policy.repeated_work);
        finding.what = "The same table is computed again in every step: no data, parameter or random number goes into it.";
        finding.evidence = fmt::format(
            "{} kernels per step ({:.2f} ms) have the same parameters in {} pairs of steps and read only what such kernels "
            "wrote.",
            base::print_figures(count, 3), ms, compared);
        finding.fix = chart.advice(Topic::kConstant);
        finding.assumption = "the table fits in memory";
        if (compared < 4) finding.confidence *= 0.8;
        return finding;
    };
    chart.suspect(Kind::kRepeatedWork, Breadth::kCall, study.policy.repeated_work, without_jobs(study, repeated.jobs), tell);
}

void find_repeated_uploads(Chart& chart) {
    const Study& study = chart.study;
    for (const auto& [place, uploads] : repeated_uploads(study)) {
        std::vector<Cure> cures{without_jobs(study, uploads.jobs)};
        // The waits that come with such copies go with them.
        for (const auto* sites : {&chart.roles.pageable, &chart.roles.syncs})
            for (const Site& site : *sites)
                if (site.place == place && place != kNoPlace) cures.push_back(without_waits(study, chart.roles, site));
        const Cure cure = all_of(std::move(cures));
        if (chart.share(study.gain_of(cure)) < study.policy.repeated_work.warn) continue;
        const auto tell = [&chart, place = place, bytes = uploads.bytes](const Judgement& verdict) {
            Finding finding = chart.finding(Kind::kRepeatedWork, place, verdict.lost_ms, chart.study.policy.repeated_work);
            finding.what = "The same bytes are uploaded again in every step.";
            finding.evidence =
                fmt::format("{:.2f} MB per step with content that did not change from one step to the next.", bytes * 1e-6);
            finding.fix = "Upload it once before the loop and keep it on the GPU.";
            finding.assumption = "it fits in memory";
            return finding;
        };
        chart.suspect(Kind::kRepeatedWork, Breadth::kCall, study.policy.repeated_work, cure, tell);
        chart.repeated_places.push_back(place);
    }
}

}  // namespace millrace::diagnose
