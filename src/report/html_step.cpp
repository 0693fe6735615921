#include "report/html_sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "plot/svg.h"
#include "report/doctor_words.h"
#include "report/html_page.h"

namespace millrace::report {
namespace {

using diagnose::Owner;
using diagnose::StepView;
using diagnose::Time;
using diagnose::Timeline;
using record::CallKind;

constexpr std::size_t kMostItems = 1200, kMostName = 160;
constexpr double kStepWidth = 10'000, kStepHeight = 10;

int number_of(Owner owner) { return static_cast<int>(owner); }

/// The first of what is sorted by begin that could still reach into the step; calls and kernels last seconds at most.
template <class Items>
auto first_within(const Items& items, const StepView& step) {
    constexpr Time kLongest = 10'000'000'000;
    const Time from = step.begin - kLongest;
    return std::lower_bound(items.begin(), items.end(), from, [](const auto& item, Time time) { return item.begin < time; });
}

std::string name_at(const Timeline& timeline, std::uint32_t name) {
    return name < timeline.names.size() ? plot::shortened(timeline.names[name], kMostName) : std::string();
}

std::vector<LaneItem> gpu_items(const StepView& step, const Timeline& timeline) {
    std::vector<LaneItem> items;
    for (auto at = first_within(timeline.work, step); at != timeline.work.end() && at->begin < step.end; ++at) {
        if (at->end <= step.begin) continue;
        constexpr std::array kUnnamed{"kernel", "copy", "memory set"};
        std::string what = name_at(timeline, at->name);
        if (what.empty()) what = kUnnamed.at(static_cast<std::size_t>(at->kind));
        items.push_back({at->begin, at->end, number_of(owner_of(*at)), std::move(what)});
    }
    return items;
}

int call_colour(CallKind kind) {
    switch (kind) {
        case CallKind::kLaunch:
        case CallKind::kGraphLaunch: return number_of(Owner::kLaunchBound);
        case CallKind::kCopy:
        case CallKind::kCopyAsync:
        case CallKind::kSet:
        case CallKind::kSetAsync: return number_of(Owner::kCopy);
        case CallKind::kDeviceSync:
        case CallKind::kStreamSync:
        case CallKind::kEventSync: return number_of(Owner::kHostSync);
        case CallKind::kAlloc:
        case CallKind::kFree:
        case CallKind::kAllocAsync:
        case CallKind::kFreeAsync:
        case CallKind::kHostAlloc:
        case CallKind::kHostFree:
        case CallKind::kHostRegister: return number_of(Owner::kAllocatorChurn);
        default: return number_of(Owner::kOther);
    }
}

constexpr std::size_t kMostThreads = 3;
constexpr double kFewCalls = 0.05;  ///< of a step's calls: a thread with less has no lane

/// Calls by thread, a lane each, as all on one would lie: of the threads that made most of them, the first to call first.
std::vector<std::vector<LaneItem>> host_lanes(const StepView& step, const Timeline& timeline) {
    std::vector<std::pair<std::uint32_t, std::vector<LaneItem>>> threads;
    std::size_t all = 0;
    for (auto at = first_within(timeline.calls, step); at != timeline.calls.end() && at->begin < step.end; ++at) {
        const diagnose::Call& call = *at;
        if (call.end <= step.begin) continue;
        ++all;
        auto known = std::ranges::find(threads, call.thread, &decltype(threads)::value_type::first);
        if (known == threads.end()) known = threads.emplace(threads.end(), call.thread, std::vector<LaneItem>{});
        std::string what = name_at(timeline, call.name);
        if (what.empty()) what = "call";
        if (call.stack < timeline.stacks.size() && !timeline.stacks[call.stack].empty())
            what += " at " + place_text(timeline.stacks[call.stack].front());
        known->second.push_back({call.begin, call.end, call_colour(call.kind), std::move(what)});
    }
    std::ranges::stable_sort(threads, std::greater{}, [](const auto& thread) { return thread.second.size(); });
    std::vector<std::vector<LaneItem>> lanes;
    for (auto& [thread, items] : threads)
        if (lanes.empty() ||
            (lanes.size() < kMostThreads && static_cast<double>(items.size()) >= kFewCalls * static_cast<double>(all)))
            lanes.push_back(std::move(items));
    std::ranges::sort(lanes, {}, [](const auto& items) { return items.front().begin; });
    return lanes;
}

std::vector<LaneItem> owner_items(const StepView& step) {
    std::vector<LaneItem> items;
    for (const auto& [span, owner] : step.stretches)
        items.push_back({span.first, span.second, number_of(owner), std::string(words_of(owner).label)});
    return items;
}

enum class LaneKind { kWork, kReasons, kCalls };

std::string lane(std::string_view name, const std::string& label, const std::vector<LaneItem>& items, const StepView& step,
                 LaneKind kind) {
    const bool reasons = kind == LaneKind::kReasons;
    const double length = std::max(1.0, static_cast<double>(step.end - step.begin));
    const auto x = [&](Time time) { return kStepWidth * std::clamp(static_cast<double>(time - step.begin) / length, 0.0, 1.0); };
    std::string text = fmt::format(
        "<div class=\"name\">{}</div><div class=\"lane{}\"><svg viewBox=\"0 0 {} {}\" preserveAspectRatio=\"none\" role=\"img\" "
        "aria-label=\"{}\">\n",
        name,
        reasons                    ? " tall"
        : kind == LaneKind::kCalls ? " calls"
                                   : "",
        kStepWidth, kStepHeight, plot::xml_text(label));
    for (const LaneItem& item : items) {
        const double from = x(item.begin), to = x(item.end);
        if (!(to > from)) continue;
        const bool busy = reasons && is_busy(static_cast<Owner>(item.colour));
        text += fmt::format(
            "<rect class=\"o{}{}\" x=\"{:.2f}\" width=\"{:.2f}\" height=\"{}\"><title>{}{}, {}, {:.3f} ms after the step "
            "began</title></rect>\n",
            item.colour, busy ? " busy" : "", from, to - from, kStepHeight,
            item.count > 1 ? fmt::format("{} in a row, the first: ", item.count) : "", plot::xml_text(item.what),
            milliseconds_text(diagnose::ms_of(item.end - item.begin)), std::max(0.0, diagnose::ms_of(item.begin - step.begin)));
    }
    return text + "</svg></div>\n";
}

std::string ticks(double ms) {
    const double step = plot::axis_step(ms);
    std::string text = "<div class=\"ticks\" aria-hidden=\"true\">";
    for (int at = 0; at * step <= ms * 1.0001; ++at) {
        const double share = at * step / ms;
        text += fmt::format("<span{} style=\"left:{:.3f}%\">{:g} ms</span>", share > 0.96 ? " class=\"end\"" : "", 100 * share,
                            at * step);
    }
    return text + "</div>";
}

std::string keys(const StepView& step) {
    std::string text = "<ul class=\"keys\">";
    for (const Owner owner : owners_by_time(step.ms))
        text += fmt::format(
            "<li><svg class=\"swatch\" aria-hidden=\"true\"><rect class=\"o{}\" width=\"14\" height=\"14\"/></svg>{} {}</li>",
            index_of(owner), words_of(owner).label, milliseconds_text(step.ms[index_of(owner)]));
    return text + "</ul>\n";
}

}  // namespace

std::vector<LaneItem> joined(std::vector<LaneItem> items, std::size_t most) {
    if (items.size() <= most || most == 0) return items;
    std::vector<Time> gaps;
    for (std::size_t at = 1; at < items.size(); ++at)
        if (items[at].colour == items[at - 1].colour) gaps.push_back(items[at].begin - items[at - 1].end);
    const std::size_t surplus = items.size() - most;
    if (gaps.empty()) return items;
    std::sort(gaps.begin(), gaps.end());
    const Time widest = gaps[std::min(surplus, gaps.size()) - 1];
    std::vector<LaneItem> out;
    for (LaneItem& item : items) {
        if (!out.empty() && out.back().colour == item.colour && item.begin - out.back().end <= widest) {
            out.back().end = std::max(out.back().end, item.end);
            ++out.back().count;
        } else {
            out.push_back(std::move(item));
        }
    }
    return out;
}

std::string html_step(const StepView& step, const Timeline& timeline, std::string_view id, const std::string& caption) {
    const double ms = diagnose::ms_of(step.end - step.begin);
    const double busy = diagnose::busy_of(step.ms);
    std::string text = fmt::format(
        "<figure class=\"card zoomable\" data-ms=\"{:.6f}\" tabindex=\"0\" aria-labelledby=\"{}\"><figcaption><h3 "
        "id=\"{}\">{}</h3><span class=\"tools\"><button type=\"button\" data-do=\"in\" aria-label=\"Zoom in\">+</button><button "
        "type=\"button\" data-do=\"out\" aria-label=\"Zoom out\">&minus;</button><button type=\"button\" data-do=\"all\">Whole "
        "step</button></span></figcaption>\n<div class=\"lanes\">\n",
        std::max(ms, 1e-6), id, id, plot::xml_text(caption));
    const std::vector<LaneItem> gpu = gpu_items(step, timeline);
    if (!gpu.empty())
        text += lane("GPU runs", fmt::format("{} pieces of work on the GPU", gpu.size()), joined(gpu, kMostItems), step,
                     LaneKind::kWork);
    text += lane("GPU waits for",
                 fmt::format("Of {}, the GPU worked {} and waited {}", milliseconds_text(ms), milliseconds_text(busy),
                             milliseconds_text(std::max(0.0, ms - busy))),
                 joined(owner_items(step), kMostItems), step, LaneKind::kReasons);
    std::size_t threads = 0;
    for (std::vector<LaneItem>& host : host_lanes(step, timeline)) {
        const std::string label = fmt::format("{} CUDA calls of {}", host.size(), threads == 0 ? "one thread" : "another");
        text += lane(threads++ == 0 ? "program calls" : "other thread", label, joined(std::move(host), kMostItems), step,
                     LaneKind::kCalls);
    }
    return text + "<div class=\"name\"></div>" + ticks(std::max(ms, 1e-6)) + "</div>\n" + keys(step) + "</figure>\n";
}

}  // namespace millrace::report
