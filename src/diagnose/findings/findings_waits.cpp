// Calls that make the host wait for the device: reads, pageable copies, the allocator.

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>

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
    std::stable_sort(sites.begin(), sites.end(), [](const Site* a, const Site* b) { return a->ms > b->ms; });
    const Site& first = *sites.front();
    Finding finding = chart.finding(Kind::kHostSync, first.place, verdict.lost_ms);
    finding.what = kHostWaits;
    double calls = 0, waited = 0;
    std::vector<std::string> others;
    for (const Site* site : sites) {
        calls += site->calls;
        waited += site->ms;
        if (site != &first) others.push_back(chart.study.places.name(site->place));
    }
    finding.evidence = fmt::format(
        "{} calls per step ({}) block for {:.2f} ms; replayed without them a step takes {:.2f} ms instead of {:.2f} ms.",
        base::print_figures(calls, 3), names_of(chart.study, first), waited, verdict.after_ms, verdict.before_ms);
    if (!others.empty())
        finding.evidence +=
            fmt::format(" They hide each other: the gain comes when those at {} go, too.", fmt::join(others, ", "));
    finding.fix = chart.advice(Topic::kRead);
    finding.assumption = "the value is not needed to decide what to launch next";
    if (first.together_per_step > 0) {
        finding.evidence += fmt::format(" The {} short kernels per step between those reads are counted as computed together.",
                                        base::print_figures(first.together_per_step, 3));
        finding.fix = chart.advice(Topic::kReadTogether);
        finding.assumption = "no value is needed to decide what to launch next, and all can be computed together";
    }
    if (first.place == kNoPlace) finding.confidence *= 0.8;
    return finding;
}

Finding tell_of_copies(const Chart& chart, const Site& site, const Judgement& verdict) {
    const Study& study = chart.study;
    Finding finding = chart.finding(Kind::kPageableCopy, site.place, verdict.lost_ms);
    finding.what = "Bulk data is copied from or to ordinary (pageable) host memory: the copy is slow and the host waits for it.";
    const double speed = site.copy_ms > 0 ? site.bytes / site.copy_ms * 1e-6 : 0;
    finding.evidence =
        fmt::format("{:.1f} MB per step move at {:.1f} GB/s and block the host for {:.2f} ms", site.bytes * 1e-6, speed, site.ms);
    if (study.copy_bytes_per_second && study.copy_speed_is_assumed) {
        finding.evidence += fmt::format("; pinned memory moves about {:.0f} GB/s to such a GPU and does not block.",
                                        *study.copy_bytes_per_second * 1e-9);
        finding.assumption =
            "the GPU is linked as its kind usually is (not recorded), and pinned copies run at that speed beside the host's work";
        finding.confidence *= 0.85;
    } else if (study.copy_bytes_per_second) {
        finding.evidence +=
            fmt::format("; pinned memory moves {:.1f} GB/s here and does not block.", *study.copy_bytes_per_second * 1e-9);
        finding.assumption = "pinned copies run at the link's speed beside the host's work";
    } else {
        finding.evidence += "; how fast pinned copies are here is not known, so only the waiting is counted.";
        finding.assumption = "the copy takes as long as now, but the host does not wait for it";
        finding.confidence *= 0.7;
    }
    finding.fix = chart.advice(Topic::kPageable);
    return finding;
}

Finding tell_of_allocator(const Chart& chart, const Judgement& verdict) {
    const Roles& roles = chart.roles;
    // Memory is taken again because it was given back: that line is to blame.
    double taken = 0, given = 0, wait = 0;
    for (const Site& site : roles.allocations) taken += site.calls;
    for (const Site& site : roles.frees) given += site.calls, wait += site.ms;
    std::uint32_t blamed = kNoPlace;
    for (const Site& site : given > 0 ? roles.frees : roles.allocations)
        if (blamed == kNoPlace && site.calls > 0) blamed = site.place;
    Finding finding = chart.finding(Kind::kAllocatorChurn, blamed, verdict.lost_ms);
    finding.what = "Device memory is given back to the driver and taken again in steady steps; giving it back waits for the GPU.";
    finding.evidence = fmt::format(
        "{} calls per step take memory and {} give it back or wait for that ({:.2f} ms, of {:.2f} ms in the allocator); replayed "
        "without them a step takes {:.2f} ms instead of {:.2f} ms.",
        base::print_figures(taken, 3), base::print_figures(given, 3), wait, roles.allocator.ms, verdict.after_ms,
        verdict.before_ms);
    finding.assumption = "the memory fits when it is kept";
    finding.fix = chart.advice(given > 0 ? Topic::kFlush : Topic::kShapes);
    return finding;
}

}  // namespace

void find_host_syncs(Chart& chart) {
    for (const Site& site : std::span(chart.roles.syncs).first(std::min(kMostSites, chart.roles.syncs.size())))
        chart.suspect(Kind::kHostSync, Breadth::kCall, without_reads(chart.roles, site), tell_of_waits, &site);
}

void find_pageable_copies(Chart& chart) {
    for (const Site& site : chart.roles.pageable)
        if (std::ranges::find(chart.repeated_places, site.place) == chart.repeated_places.end())
            chart.suspect(Kind::kPageableCopy, Breadth::kCall, with_pinned_copies(chart.roles, site),
                          [&site](const Chart& asked, const Judgement& verdict) { return tell_of_copies(asked, site, verdict); });
}

void find_allocator_churn(Chart& chart) {
    if (chart.roles.allocator.calls > 0)
        chart.suspect(Kind::kAllocatorChurn, Breadth::kCall, without_allocations(chart.roles), tell_of_allocator);
}

}  // namespace millrace::diagnose
