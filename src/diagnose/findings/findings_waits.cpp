// Calls that make the host wait for the device: reads, pageable copies, the allocator.

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include "base/units.h"
#include "diagnose/findings/findings.h"

namespace millrace::diagnose {
namespace {

constexpr std::size_t kMostSites = 16;

/// "cudaMemcpyAsync and cudaStreamSynchronize": names of a site's calls.
std::string names_of(const Study& study, const Site& site) {
    std::set<std::string> names;
    for (std::size_t lane = 0; lane < site.acts.size(); ++lane)
        for (std::uint32_t act : site.acts[lane]) {
            if (const std::uint32_t name = study.call(lane, act).name; name != kNoName) names.insert(study.timeline.names[name]);
            if (names.size() >= 3) break;
        }
    return names.empty() ? "blocking calls" : fmt::format("{}", fmt::join(names, ", "));
}

/// Waits of one line, or of several of which each waits for what the others would have waited for.
Finding tell_of_waits(const Chart& chart, const Judgement& verdict) {
    std::vector<const Site*> sites = verdict.sites;
    std::ranges::stable_sort(sites, std::greater{}, &Site::ms);
    const Site& first = *sites.front();
    double calls = 0, waited = 0;
    std::vector<std::string> others;
    for (const Site* site : sites) {
        calls += site->calls;
        waited += site->ms;
        if (site != &first) others.push_back(chart.study.places.name(site->place));
    }
    Words words{kHostWaits,
                fmt::format("{} calls per step ({}) block for {:.2f} ms; {}.", base::print_figures(calls, 3),
                            names_of(chart.study, first), waited, replayed(verdict, "them")),
                chart.advice(Topic::kRead), "the value is not needed to decide what to launch next"};
    if (!others.empty())
        words.evidence += fmt::format(" They hide each other: the gain comes when those at {} go, too.", fmt::join(others, ", "));
    if (first.together_per_step > 0) {
        words.evidence += fmt::format(" The {} short kernels per step between those reads are counted as computed together.",
                                      base::print_figures(first.together_per_step, 3));
        words.fix = chart.advice(Topic::kReadTogether);
        words.assumption = "no value is needed to decide what to launch next, and all can be computed together";
    }
    return chart.finding(Kind::kHostSync, first.place, verdict.lost_ms, std::move(words), first.place == kNoPlace ? 0.8 : 1);
}

Finding tell_of_copies(const Chart& chart, const Site& site, const Judgement& verdict) {
    const Study& study = chart.study;
    const double pinned = study.copy_bytes_per_second.value_or(0) * 1e-9,
                 speed = site.copy_ms > 0 ? site.bytes / site.copy_ms * 1e-6 : 0;
    double sure = 1;
    Words words{"Bulk data is copied from or to ordinary (pageable) host memory: the copy is slow and the host waits for it.",
                fmt::format("{:.1f} MB per step move at {:.1f} GB/s and block the host for {:.2f} ms; ", site.bytes * 1e-6, speed,
                            site.ms),
                chart.advice(Topic::kPageable), "pinned copies run at the link's speed beside the host's work"};
    if (!study.copy_bytes_per_second) {
        words.evidence += "how fast pinned copies are here is not known, so only the waiting is counted.";
        words.assumption = "the copy takes as long as now, but the host does not wait for it";
        sure = 0.7;
    } else if (study.copy_speed_is_assumed) {
        words.evidence += fmt::format("pinned memory moves about {:.0f} GB/s to such a GPU and does not block.", pinned);
        words.assumption =
            "the GPU is linked as its kind usually is (not recorded), and pinned copies run at that speed beside the host's work";
        sure = 0.85;
    } else {
        words.evidence += fmt::format("pinned memory moves {:.1f} GB/s here and does not block.", pinned);
    }
    return chart.finding(Kind::kPageableCopy, site.place, verdict.lost_ms, std::move(words), sure);
}

Finding tell_of_allocator(const Chart& chart, const Judgement& verdict) {
    const Roles& roles = chart.roles;
    // Memory is taken again because it was given back: that line is to blame.
    double taken = 0, given = 0, wait = 0;
    for (const Site& site : roles.allocations) taken += site.calls;
    for (const Site& site : roles.frees) given += site.calls, wait += site.ms;
    const auto& sites = given > 0 ? roles.frees : roles.allocations;
    const auto blamed = std::ranges::find_if(sites, [](const Site& site) { return site.calls > 0 && site.place != kNoPlace; });
    return chart.finding(
        Kind::kAllocatorChurn, blamed == sites.end() ? kNoPlace : blamed->place, verdict.lost_ms,
        {"Device memory is given back to the driver and taken again in steady steps; giving it back waits for the GPU.",
         fmt::format("{} calls per step take memory and {} give it back or wait for that ({:.2f} ms, of {:.2f} ms in the "
                     "allocator); {}.",
                     base::print_figures(taken, 3), base::print_figures(given, 3), wait, roles.allocator.ms,
                     replayed(verdict, "them")),
         chart.advice(given > 0 ? Topic::kFlush : Topic::kShapes), "the memory fits when it is kept"});
}

}  // namespace

void find_host_syncs(Chart& chart) {
    for (const Site& site : std::span(chart.roles.syncs).first(std::min(kMostSites, chart.roles.syncs.size())))
        chart.suspect(Kind::kHostSync, Breadth::kCall, without_reads(chart.roles, site), tell_of_waits, &site);
}

void find_memory_waits(Chart& chart) {
    for (const Site& site : chart.roles.pageable)
        if (std::ranges::find(chart.repeated_places, site.place) == chart.repeated_places.end())
            chart.suspect(Kind::kPageableCopy, Breadth::kCall, with_pinned_copies(chart.roles, site),
                          [&site](const Chart& asked, const Judgement& verdict) { return tell_of_copies(asked, site, verdict); });
    if (chart.roles.allocator.calls > 0)
        chart.suspect(Kind::kAllocatorChurn, Breadth::kCall, without_waits(chart.roles, chart.roles.allocator),
                      tell_of_allocator);
}

}  // namespace millrace::diagnose
