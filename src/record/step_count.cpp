#include "record/step_count.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace millrace::record {
namespace {

constexpr double kMayBeOff = 0.02;  ///< of the steps that are told

template <class Key>
double count_of(const std::map<Key, std::uint64_t>& counts, const Key& key) {
    const auto found = counts.find(key);
    return found == counts.end() ? 0 : static_cast<double>(found->second);
}

}  // namespace

void StepCount::add(const Record& call, bool counted) {
    const Place place{static_cast<CallKind>(call.what), call.site};
    showing_.insert(place);
    if (counted) return;
    ++recorded_[place];
    ++recorded_of_kind_[place.first];
    if (call.site == 0) ++unplaced_[place.first];
}

void StepCount::take(const ProbeReport& report) {
    std::map<Place, std::uint64_t> counted;
    for (const SiteCalls& each : report.sites) counted[{each.kind, each.site}] += each.calls;
    active_.clear();
    for (const auto& [place, calls] : counted) {
        std::uint64_t& before = counted_[place];
        if (place.first == kind_ && calls > before) active_.insert(place.second);
        before = std::max(before, calls);
    }
    pulses_ = std::max(pulses_, report.pulses);
    if (report.unplaced > 0) doubt("calls were made at too many places");
}

void StepCount::end_window(std::optional<StepFacts> facts, Sureness before, bool led) {
    if (facts && led) {
        facts->pulse = facts->led;
        facts->pulse_depth = 0;
        facts->calls_at_site = 0;
        facts->pulse_apart.clear();
    }
    const bool teaches = facts && sureness(*facts) <= before;
    trains_ = !before.no_training || (facts && !sureness(*facts).no_training);
    if (teaches) learn(*facts, sureness(*facts) < before);
    if (facts && sureness(*facts).no_training) evaluated_.emplace(facts->pulse.call, facts->pulse.site);
    if (trains_ && std::ranges::any_of(steps_at_, [&](const auto& step) { return evaluated_.contains({kind_, step.first}); }))
        doubt("an evaluation makes the same calls as a step");
    for (const Place& place : showing_)
        if (facts && !(teaches && std::ranges::find(facts->pulse_apart, place.second) != facts->pulse_apart.end()))
            shown_.insert(place);
    showing_.clear();
}

void StepCount::learn(const StepFacts& facts, bool surer) {
    if (surer) steps_at_.clear();
    if (facts.pulse.site == 0) {
        if (steps_at_.empty()) kind_ = facts.pulse.call, per_step_ = facts.pulse.per_step;
        return;
    }
    // Of no other kind all calls were counted.
    if (kind_ != CallKind::kOther && (per_step_ > 0 || kind_ != facts.pulse.call)) {
        doubt("another call is counted than at first");
        steps_at_.clear();
    }
    per_step_ = 0;
    kind_ = facts.pulse.call;
    const bool fresh = !steps_at_.contains(facts.pulse.site);
    for (const auto& [site, step] : steps_at_)
        if (fresh && showing_.contains({kind_, site}) && std::ranges::find(facts.pulse_apart, site) == facts.pulse_apart.end())
            doubt("windows differ in which call makes a step");
    // One more may be cut by the window's begin. What merely returns tells no step that is unlike the others.
    const bool more = facts.calls_at_site > facts.pulse.per_step * (facts.steps + 1) || (facts.trains && facts.idle > 1);
    if (more && facts.source != StepSource::kPeriod) doubt("the same calls come outside of training, too");
    StepSite& step = steps_at_[facts.pulse.site];
    if (!fresh && std::abs(step.per_step - facts.pulse.per_step) > kMayBeOff * step.per_step)
        doubt("windows differ in how many calls make a step");
    step = {static_cast<double>(facts.pulse.per_step), facts.pulse_depth};
}

void StepCount::doubt(std::string why) {
    if (why_.empty()) why_ = std::move(why);
}

double StepCount::steps() const {
    double steps = 0;
    for (const auto& [site, step] : steps_at_)
        steps += (count_of(recorded_, Place{kind_, site}) + count_of(counted_, Place{kind_, site})) / step.per_step;
    if (!steps_at_.empty() || per_step_ <= 0) return steps;
    return (count_of(recorded_of_kind_, kind_) + static_cast<double>(pulses_)) / per_step_;
}

bool StepCount::may_be_step(std::uint32_t site, const StepWatch& watch) const {
    if (site == 0) return true;  // no stack was read for it
    return !shown_.contains({kind_, site}) &&
           std::ranges::any_of(steps_at_, [&](const auto& step) { return watch.is_like(site, step.first, step.second.depth); });
}

std::string StepCount::doubt(const StepWatch& watch) const {
    if (!why_.empty()) return why_;
    if (kind_ == CallKind::kOther) return "no step was found";
    if (steps_at_.empty()) return "no call at a line of Python comes equally often in every step";
    double strange = count_of(unplaced_, kind_) / steps_at_.begin()->second.per_step;
    for (const auto& [place, calls] : counted_)
        if (place.first == kind_ && may_be_step(place.second, watch))
            strange += static_cast<double>(calls) / steps_at_.begin()->second.per_step;
    if (strange <= kMayBeOff * steps()) return {};
    return fmt::format("no window shows whether {:.0f} more turns of their loop were", strange);
}

std::uint32_t StepCount::unseen_site(const StepWatch& watch) const {
    const auto met = std::ranges::find_if(active_, [&](std::uint32_t site) {
        return may_be_step(site, watch) || (!trains_ && !shown_.contains({kind_, site}));
    });
    return met == active_.end() ? 0 : *met;
}

}  // namespace millrace::record
