#include "models/forgetting.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/json.h"

namespace millrace::models {
namespace {

double average_of(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::vector<std::size_t> members_of(const Course& course, const std::string& group) {
    std::vector<std::size_t> members;
    for (std::size_t k = 0; k < course.groups.size(); ++k)
        if (course.groups[k] == group) members.push_back(k);
    return members;
}

using MemberFigure = std::function<double(std::size_t member)>;

Estimate over(const std::vector<std::size_t>& members, const MemberFigure& figure) {
    std::vector<double> values;
    for (const std::size_t member : members) values.push_back(figure(member));
    return estimate(values);
}

GroupForgetting group_of(const Course& course, const std::string& name) {
    const std::vector<std::size_t> members = members_of(course, name);
    const std::size_t domains = course.domains.size();
    GroupForgetting group{name, {}, {}, {}, {}};
    for (std::size_t stage = 0; stage < domains; ++stage) {
        const DomainLosses* after = course.after(stage);
        if (after == nullptr) break;
        group.losses.emplace_back();
        for (std::size_t d = 0; d < domains; ++d)
            group.losses.back().push_back(over(members, [&](std::size_t k) { return after->losses[k][d]; }));
    }
    if (!course.complete()) return group;
    for (std::size_t d = 0; d + 1 < domains; ++d)
        group.by_domain.push_back(over(members, [&](std::size_t k) { return course.forgetting(k, d); }));
    group.mean = over(members, [&](std::size_t k) { return course.mean_forgetting(k); });
    group.final_loss = over(members, [&](std::size_t k) { return average_of(course.after(domains - 1)->losses[k]); });
    return group;
}

/// Pairs of equal seeds, or none when a member has no partner.
std::vector<std::pair<std::size_t, std::size_t>> partners(const Course& course, const std::vector<std::size_t>& group,
                                                          std::vector<std::size_t> control) {
    std::vector<std::pair<std::size_t, std::size_t>> pairs;
    if (group.size() != control.size()) return pairs;
    for (const std::size_t member : group) {
        const auto found = std::ranges::find_if(control, [&](std::size_t k) { return course.seeds[k] == course.seeds[member]; });
        if (found == control.end()) return {};
        pairs.emplace_back(member, *found);
        control.erase(found);
    }
    return pairs;
}

Estimate difference_of(const Course& course, const std::string& group, const std::string& control, const MemberFigure& figure) {
    const std::vector<std::size_t> left = members_of(course, group), right = members_of(course, control);
    if (const auto pairs = partners(course, left, right); !pairs.empty()) {
        std::vector<double> values;
        for (const auto& [one, other] : pairs) values.push_back(figure(one) - figure(other));
        return estimate(values);
    }
    const Estimate a = over(left, figure), b = over(right, figure);
    return {a.mean - b.mean, std::hypot(a.error, b.error), std::min(a.seeds, b.seeds)};
}

std::string nats_text(const Estimate& value) { return fmt::format("{:.3f} +- {:.3f} nats", std::abs(value.mean), value.error); }

using Json = nlohmann::ordered_json;

constexpr int kContinualFormat = 1;

/// Columns as wide as their widest cell, the first to the left, the others to the right.
std::string aligned(const std::vector<std::vector<std::string>>& rows) {
    std::vector<std::size_t> widths;
    for (const auto& row : rows)
        for (std::size_t i = 0; i < row.size(); ++i) {
            widths.resize(std::max(widths.size(), i + 1));
            widths[i] = std::max(widths[i], row[i].size());
        }
    std::string text;
    for (const auto& row : rows) {
        std::string line = "  ";
        for (std::size_t i = 0; i < row.size(); ++i)
            line += i == 0 ? fmt::format("{:<{}}", row[i], widths[i]) : fmt::format("  {:>{}}", row[i], widths[i]);
        text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    return text;
}

std::string with_error(const Estimate& value) {
    return std::isfinite(value.error) ? fmt::format("{:.3f} +- {:.3f}", value.mean, value.error)
                                      : fmt::format("{:.3f}", value.mean);
}

Json estimate_json(const Estimate& value) { return {{"mean", value.mean}, {"standard_error", value.error}}; }

template <class Each, class Describe>
Json list_json(const std::vector<Each>& all, const Describe& describe) {
    Json list = Json::array();
    for (const Each& each : all) list.push_back(describe(each));
    return list;
}
Json estimates_json(const std::vector<Estimate>& all) { return list_json(all, estimate_json); }

Json course_member_json(const Course& course, std::size_t k) {
    Json json{{"member", k}, {"group", course.groups[k]}, {"seed", course.seeds[k]}};
    json["loss"] = Json::array();
    json["perplexity"] = Json::array();
    for (std::size_t stage = 0; stage < course.domains.size(); ++stage) {
        const DomainLosses* after = course.after(stage);
        if (after == nullptr) break;
        json["loss"].push_back(after->losses[k]);
        json["perplexity"].push_back(list_json(after->losses[k], [](double loss) { return std::exp(loss); }));
    }
    if (!course.complete()) return json;
    json["forgetting"] = Json::array();
    for (std::size_t d = 0; d + 1 < course.domains.size(); ++d) json["forgetting"].push_back(course.forgetting(k, d));
    json["mean_forgetting"] = course.mean_forgetting(k);
    return json;
}

Json group_json(const GroupForgetting& group, bool complete) {
    Json json{{"group", group.name}, {"loss", list_json(group.losses, estimates_json)}};
    if (!complete) return json;
    json["forgetting"] = estimates_json(group.by_domain);
    json["mean_forgetting"] = estimate_json(group.mean);
    json["final_loss"] = estimate_json(group.final_loss);
    return json;
}

}  // namespace

const DomainLosses* Course::after(std::size_t stage) const {
    const auto found = std::ranges::find(epochs, static_cast<std::uint32_t>(stage + 1) * epochs_each, &DomainLosses::epoch);
    return found == epochs.end() ? nullptr : &*found;
}

double Course::forgetting(std::size_t member, std::size_t domain) const {
    return after(domains.size() - 1)->losses[member][domain] - after(domain)->losses[member][domain];
}

double Course::mean_forgetting(std::size_t member) const {
    std::vector<double> values;
    for (std::size_t d = 0; d + 1 < domains.size(); ++d) values.push_back(forgetting(member, d));
    return average_of(values);
}

Estimate estimate(const std::vector<double>& values) {
    Estimate made{average_of(values), std::numeric_limits<double>::quiet_NaN(), values.size()};
    if (values.size() < 2) return made;
    double squares = 0;
    for (const double value : values) squares += (value - made.mean) * (value - made.mean);
    made.error = std::sqrt(squares / static_cast<double>(values.size() - 1) / static_cast<double>(values.size()));
    return made;
}

int Estimate::sign() const {
    if (!(std::abs(mean) > 2 * error)) return 0;
    return mean < 0 ? -1 : 1;
}

std::string Comparison::conclusion() const {
    if (!std::isfinite(forgetting.mean) || !std::isfinite(final_loss.mean))
        return fmt::format("{} and {} cannot be compared: a loss is not finite", group, control);
    if (!std::isfinite(forgetting.error))
        return fmt::format("{} and {} cannot be compared: one seed says nothing; {} forgot {:.3f} nats {}", group, control, group,
                           std::abs(forgetting.mean), forgetting.mean < 0 ? "less" : "more");
    const std::string seeds = fmt::format(" ({} seeds)", forgetting.seeds);
    std::string text;
    if (!any)
        text = fmt::format(
            "{} and {} have forgotten nothing beyond noise: on average later domains did not raise the loss of earlier ones{}",
            group, control, seeds);
    else if (verdict() == 0)
        text = fmt::format("{} against {}: no difference in forgetting beyond noise, {}{}{}", group, control,
                           forgetting.mean < 0 ? "-" : "", nats_text(forgetting), seeds);
    else
        text = fmt::format("{} forgets {} than {}: {}{}", group, verdict() < 0 ? "less" : "more", control, nats_text(forgetting),
                           seeds);
    if (final_loss.sign() == 0) return text + "; the mean loss over all domains at the end differs by no more than noise";
    return text + fmt::format("; the mean loss over all domains at the end is {} by {}",
                              final_loss.sign() < 0 ? "lower" : "higher", nats_text(final_loss));
}

Forgetting measure_forgetting(const Course& course) {
    Forgetting measured;
    for (const std::string& name : course.groups)
        if (std::ranges::find(measured.groups, name, &GroupForgetting::name) == measured.groups.end())
            measured.groups.push_back(group_of(course, name));
    if (!course.complete()) return measured;
    for (const GroupForgetting& group : measured.groups) {
        if (std::ranges::find(course.controls, group.name) != course.controls.end()) continue;
        for (const std::string& control : course.controls) {
            const auto other = std::ranges::find(measured.groups, control, &GroupForgetting::name);
            measured.comparisons.push_back(
                {group.name, control,
                 difference_of(course, group.name, control, [&](std::size_t k) { return course.mean_forgetting(k); }),
                 difference_of(course, group.name, control,
                               [&](std::size_t k) { return average_of(course.after(course.domains.size() - 1)->losses[k]); }),
                 group.mean.sign() > 0 || other->mean.sign() > 0});
        }
    }
    return measured;
}

std::string forgetting_text(const Course& course, const Forgetting& measured) {
    std::vector<std::vector<std::string>> losses{{"loss (perplexity)", ""}};
    losses.front().insert(losses.front().end(), course.domains.begin(), course.domains.end());
    for (const GroupForgetting& group : measured.groups)
        for (std::size_t stage = 0; stage < group.losses.size(); ++stage) {
            losses.push_back({stage == 0 ? group.name : "", "after " + course.domains[stage]});
            for (const Estimate& loss : group.losses[stage])
                losses.back().push_back(fmt::format("{:.3f} ({:.1f})", loss.mean, std::exp(loss.mean)));
        }
    std::string text = aligned(losses);
    if (!course.complete()) return text + "  the last domain was not learned, so there is no forgetting to measure\n";
    std::vector<std::vector<std::string>> forgotten{{"forgotten, nats", "seeds"}};
    forgotten.front().insert(forgotten.front().end(), course.domains.begin(), course.domains.end() - 1);
    for (const char* title : {"mean", "mean loss at the end"}) forgotten.front().emplace_back(title);
    for (const GroupForgetting& group : measured.groups) {
        forgotten.push_back({group.name, std::to_string(group.mean.seeds)});
        for (const Estimate& domain : group.by_domain) forgotten.back().push_back(with_error(domain));
        forgotten.back().push_back(with_error(group.mean));
        forgotten.back().push_back(with_error(group.final_loss));
    }
    text += aligned(forgotten);
    for (const Comparison& comparison : measured.comparisons) text += comparison.conclusion() + "\n";
    return text;
}

std::string forgetting_json(const Course& course, const Forgetting& measured) {
    Json json{{"format", kContinualFormat},    {"domains", course.domains}, {"epochs_per_domain", course.epochs_each},
              {"complete", course.complete()}, {"compare", course.compare}, {"controls", course.controls}};
    for (const char* list : {"comparisons", "groups", "members", "epochs"}) json[list] = Json::array();
    for (std::size_t k = 0; k < course.groups.size(); ++k) json["members"].push_back(course_member_json(course, k));
    for (const GroupForgetting& group : measured.groups) json["groups"].push_back(group_json(group, course.complete()));
    for (const Comparison& comparison : measured.comparisons) {
        const int sign = comparison.verdict();
        json["comparisons"].push_back({{"group", comparison.group},
                                       {"control", comparison.control},
                                       {"forgetting", estimate_json(comparison.forgetting)},
                                       {"final_loss", estimate_json(comparison.final_loss)},
                                       {"verdict", sign < 0   ? "less"
                                                   : sign > 0 ? "more"
                                                              : "none"},
                                       {"conclusion", comparison.conclusion()}});
    }
    for (const DomainLosses& epoch : course.epochs) json["epochs"].push_back({{"epoch", epoch.epoch}, {"loss", epoch.losses}});
    return base::json_text(json, 1) + "\n";  // names of folders may be no UTF-8
}

}  // namespace millrace::models
