#include "base/json.h"
#include "models/forgetting.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace millrace::models {
namespace {

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

Json course_member_json(const Course& course, std::size_t k) {
    Json json{{"member", k}, {"group", course.groups[k]}, {"seed", course.seeds[k]}};
    json["loss"] = Json::array();
    json["perplexity"] = Json::array();
    for (std::size_t stage = 0; stage < course.domains.size(); ++stage) {
        const DomainLosses* after = course.after(stage);
        if (after == nullptr) break;
        Json perplexities = Json::array();
        for (const double loss : after->losses[k]) perplexities.push_back(std::exp(loss));
        json["loss"].push_back(after->losses[k]);
        json["perplexity"].push_back(std::move(perplexities));
    }
    if (!course.complete()) return json;
    json["forgetting"] = Json::array();
    for (std::size_t d = 0; d + 1 < course.domains.size(); ++d) json["forgetting"].push_back(course.forgetting(k, d));
    json["mean_forgetting"] = course.mean_forgetting(k);
    return json;
}

Json group_json(const GroupForgetting& group, bool complete) {
    Json json{{"group", group.name}};
    json["loss"] = Json::array();
    for (const auto& stage : group.losses) {
        json["loss"].push_back(Json::array());
        for (const Estimate& loss : stage) json["loss"].back().push_back(estimate_json(loss));
    }
    if (!complete) return json;
    json["forgetting"] = Json::array();
    for (const Estimate& domain : group.by_domain) json["forgetting"].push_back(estimate_json(domain));
    json["mean_forgetting"] = estimate_json(group.mean);
    json["final_loss"] = estimate_json(group.final_loss);
    return json;
}

}  // namespace

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
