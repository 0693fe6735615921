#include "diagnose/read_together.h"

#include <algorithm>
#include <unordered_map>

namespace millrace::diagnose {
namespace {

/// Short jobs that prepare the value that `read` reads, launched since the read before; absent where more happens in between.
std::optional<std::vector<std::uint32_t>> prepared_between(const Study& study, const Site& site, std::size_t lane,
                                                           std::uint32_t before, std::uint32_t read) {
    const Lane& calls = study.lanes[lane];
    std::vector<std::uint32_t> jobs;
    std::size_t launched = 0;
    for (std::uint32_t act = before + 1; act < read; ++act) {
        const std::uint32_t first = calls.jobs_of_call[act], end = calls.jobs_of_call[act + 1];
        if (first == end) continue;
        const Call& call = study.call(lane, act);
        if (call.kind != CallKind::kLaunch && call.kind != CallKind::kSetAsync) return std::nullopt;
        // Lines of launches are taken in some steps only.
        if (call.stack != kNoStack && study.host.place_of(lane, act) != site.place) return std::nullopt;
        launched += end - first;
        if (launched > study.policy.kernels_per_read) return std::nullopt;
        for (std::uint32_t i = first; i < end; ++i)
            if (const Job& job = calls.jobs[calls.own_jobs[i]]; job.end - job.begin <= study.policy.short_kernel)
                jobs.push_back(calls.own_jobs[i]);
    }
    return jobs;
}

/// Whether a step begins after the job of call `before` and up to that of call `read`.
bool step_begins_between(const Study& study, std::size_t lane, std::uint32_t before, std::uint32_t read) {
    const Lane& calls = study.lanes[lane];
    const auto& steps = study.steps[lane].steps;
    const std::uint32_t last = calls.own_jobs[calls.jobs_of_call[before]], next = calls.own_jobs[calls.jobs_of_call[read]];
    const auto step = std::partition_point(steps.begin(), steps.end(), [&](const Step& each) { return each.first_job <= last; });
    return step != steps.end() && step->first_job <= next;
}

}  // namespace

void find_together(const Study& study, const std::vector<std::vector<Role>>& roles, Site& site) {
    site.together.resize(study.lanes.size());
    std::size_t steady = 0;
    for (std::size_t lane = 0; lane < study.lanes.size(); ++lane) {
        const Lane& calls = study.lanes[lane];
        std::vector<std::uint32_t> run;
        std::size_t reads = 0;
        std::uint32_t before = kNoIndex;
        const auto close = [&] {
            if (reads >= study.policy.many_reads) {
                site.together[lane].insert(site.together[lane].end(), run.begin(), run.end());
                if (study.is_steady(lane, before)) steady += run.size();
            }
            run.clear();
            reads = 0;
        };
        for (std::uint32_t act : site.acts[lane]) {
            if (roles[lane][act] != Role::kReads || calls.jobs_of_call[act] == calls.jobs_of_call[act + 1]) continue;
            if (before != kNoIndex) {
                const auto jobs = prepared_between(study, site, lane, before, act);
                if (jobs && !step_begins_between(study, lane, before, act))
                    run.insert(run.end(), jobs->begin(), jobs->end());
                else
                    close();
            }
            before = act;
            ++reads;
        }
        close();
    }
    site.together_per_step = static_cast<double>(steady) / static_cast<double>(study.step_count);
}

void compute_together(const Study& study, const Site& site, std::size_t lane, Model& model) {
    const Lane& calls = study.lanes[lane];
    const auto name_of_job = [&](std::uint32_t job) { return study.timeline.work[calls.jobs[job].first_work].name; };
    // The shortest of a kernel's runs, with the smallest tensor, shows how much of its time is no work.
    std::unordered_map<std::uint32_t, Time> latency;
    for (std::uint32_t job : site.together[lane]) {
        Time& shortest = latency.try_emplace(name_of_job(job), study.policy.kernel_latency).first->second;
        shortest = std::min(shortest, calls.jobs[job].end - calls.jobs[job].begin);
    }
    for (std::uint32_t job : site.together[lane]) {
        Task& task = model.tasks[job];
        task.duration -= std::min(task.duration, latency[name_of_job(job)]);
        task.pause = 0;
        Act& act = model.acts[task.act];
        act.own = 0;
        if (act.gap <= study.policy.launch_gap) act.gap = 0;
    }
}

}  // namespace millrace::diagnose
