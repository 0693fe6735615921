#include "train/domain_scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/split.h"
#include "models/forgetting.h"

namespace millrace::train {
namespace {

/// The values of a key, one for each member: of a list, or of a text with commas.
base::Result<std::vector<std::string>> values_of(const base::Recipe& recipe, const std::string& key, std::size_t members) {
    const nlohmann::json whole = base::json_or_throw(recipe.to_json());
    const nlohmann::json* at = &whole;
    for (const std::string& part : base::split(key, '.')) {
        if (!at->is_object() || !at->contains(part))
            return recipe.bad("eval.compare", fmt::format("eval.compare = \"{}\" is no key of the recipe; one with a value for "
                                                          "each of {} members, such as optim.lr, would be right",
                                                          key, members));
        at = &at->at(part);
    }
    std::vector<std::string> values;
    if (at->is_string()) values = base::split(at->get<std::string>(), ',');
    if (at->is_array())
        for (const nlohmann::json& value : *at) values.push_back(base::json_text(value));
    if (values.size() != members)
        return recipe.bad("eval.compare", fmt::format("eval.compare = \"{}\", which has {} values; one for each of {} members "
                                                      "would be right",
                                                      key, values.size(), members));
    return values;
}

}  // namespace

double token_loss(const Score& score) {
    const models::Figure* perplexity = score.more.find("perplexity");
    return perplexity != nullptr ? std::log(perplexity->value) : score.loss;
}

base::Result<models::Course> course_of(const base::Recipe& recipe, const RunSettings& settings) {
    models::Course course;
    if (settings.domains.empty()) return course;
    for (const data::Domain& domain : settings.domains) course.domains.push_back(domain.name);
    course.epochs_each = settings.epochs / static_cast<std::uint32_t>(settings.domains.size());
    course.seeds = settings.seeds;
    course.compare = recipe.text("eval.compare");
    course.groups.assign(settings.seeds.size(), "all");
    if (!course.compare.empty()) MILLRACE_SET(course.groups, values_of(recipe, course.compare, settings.seeds.size()));
    if (const std::string& controls = recipe.text("eval.controls"); !controls.empty())
        course.controls = base::split(controls, ',');
    for (const std::string& control : course.controls)
        if (std::ranges::find(course.groups, control) == course.groups.end())
            return recipe.bad("eval.controls", fmt::format("eval.controls has '{}', which no member has by eval.compare; some of "
                                                           "{} would be right",
                                                           control, fmt::join(course.groups, ", ")));
    return course;
}

base::Status DomainScores::on_epoch(EpochReport& report) {
    if (course_.domains.empty() || report.step % steps_per_epoch_ != 0) return base::ok();
    // Checkpoints of earlier versions have the scores of a run that ended within this epoch.
    if (!course_.epochs.empty() && course_.epochs.back().epoch == report.epoch) course_.epochs.pop_back();
    models::DomainLosses& now = course_.epochs.emplace_back();
    now.epoch = report.epoch;
    for (const Score& member : report.validation) {
        std::vector<double>& losses = now.losses.emplace_back();
        for (const Score& domain : member.domains) losses.push_back(token_loss(domain));
    }
    return base::ok();
}

base::Status DomainScores::on_stop(RunResult& result) {
    if (course_.domains.empty() || folder_.empty() || result.stopped) return base::ok();
    const models::Forgetting measured = models::measure_forgetting(course_);
    MILLRACE_TRY(io::write_atomically(folder_ / "continual.json", models::forgetting_json(course_, measured)));
    MILLRACE_TRY(io::write_atomically(folder_ / "continual.svg", models::forgetting_svg(course_, measured)));
    result.notes += models::forgetting_text(course_, measured);
    return base::ok();
}

}  // namespace millrace::train
