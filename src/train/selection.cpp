#include "train/selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/log.h"
#include "base/split.h"
#include "base/units.h"
#include "models/class_report.h"
#include "models/forgetting.h"
#include "models/weights.h"

namespace millrace::train {

namespace {

/// A measure and the loss beside it: equal measures, such as an accuracy of 1, are told apart by the loss. NaN is no measure.
struct Merit {
    double value, loss;
    [[nodiscard]] bool beats(const Merit& other) const {
        return !(value <= other.value) || (value == other.value && loss < other.loss);
    }
};

}  // namespace

base::Status Selection::on_epoch(EpochReport& report) {
    MILLRACE_SET(report.validation, loop_.evaluate(data::Part::validation, loop_.engine()));
    note_best(report);
    return base::ok();
}

/// A member is judged by its own epochs, equal ones by their loss; one whose loss is not finite or that its scoring refuses is no
/// candidate. Without validation data the newest weights are the best known; where domains are learned one after the other, what
/// was learned last counts. A member that never had a candidate stands in `best` with the weights of when any other improved.
void Selection::note_best(EpochReport& report) {
    const RunSettings& settings = loop_.setup().settings;
    const bool unscored = report.validation.empty(), newest = unscored || !settings.domains.empty();
    std::error_code ignored;
    const bool is_lost = best_.members.size() > 1 && !std::filesystem::exists(folder_, ignored);
    BestSoFar now = is_lost ? BestSoFar{} : best_;
    const bool any = std::exchange(now.any, true);
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const Merit before{now.value, now.members.empty() ? kInfinity : now.members[now.member].loss};
    Merit highest{unscored ? 0 : -kInfinity, kInfinity};
    std::size_t member = 0;
    bool improved = unscored;
    std::vector<bool> taken(static_cast<std::size_t>(loop_.members()), unscored);
    now.members.resize(report.validation.size());
    for (std::size_t k = 0; k < report.validation.size(); ++k) {
        const Score& score = report.validation[k];
        if (!score.more.refused.empty()) refused_ = score.more.refused;
        const double own = merit(score, settings.checkpoint.best_metric);
        const bool candidate = std::isfinite(score.loss) && score.more.refused.empty() && std::isfinite(own);
        const Merit merit{own, score.loss};
        if (candidate && merit.beats(highest)) {
            highest = merit;
            member = k;
        }
        MemberBest& best = now.members[k];
        const bool better = candidate && (newest || merit.beats({best.value, best.loss}));
        improved = improved || better;
        taken[k] = better || std::isnan(best.value);
        if (taken[k])
            best = {candidate ? own : std::numeric_limits<double>::quiet_NaN(), report.epoch, report.step, score.loss,
                    score.accuracy};
    }
    if (!improved) return;
    report.best = !any || newest || highest.beats(before);
    if (report.best) {
        now.value = highest.value;
        now.member = static_cast<std::uint32_t>(member);
        now.epoch = report.epoch;
        now.step = report.step;
    }
    best_before_ = std::exchange(best_, std::move(now));
    scores_before_ = scores_;
    scores_.resize(report.validation.size());
    for (std::size_t k = 0; k < scores_.size(); ++k)
        if (taken[k]) scores_[k] = report.validation[k];
    report.best_members = std::move(taken);
}

/// The best weights on the test part; without one, the scores on what was set aside to select by. None after a stop.
base::Result<std::vector<Score>> Selection::test_scores(RunResult& result) {
    if (loop_.stop() != nullptr && loop_.stop()->load() != 0) return std::vector<Score>{};
    MILLRACE_LET(best, io::load_checkpoint(folder_, io::LoadParts::kModelOnly));
    loop_.ranks().keep_own(best);
    MILLRACE_LET(found, engine_of_(best));
    Engine& engine = *found;
    MILLRACE_TRY(models::load_weights(engine.store(), best, false, engine.attachments()));
    result.tested = engine.source().samples(data::Part::test) > 0;
    const data::Part part = result.tested ? data::Part::test : data::Part::validation;
    result.held = engine.source().samples(part);
    if (!result.tested && !scores_.empty() && std::ranges::all_of(scores_, [](const auto& score) { return score.has_value(); })) {
        std::vector<Score> known;
        for (const auto& score : scores_) known.push_back(*score);
        return known;
    }
    return loop_.evaluate(part, engine, loop_.stop());
}

base::Status Selection::on_stop(RunResult& result) {
    if (result.stopped) return base::ok();
    const auto members = static_cast<std::size_t>(loop_.members());
    if (result.dropped == result.step * members)
        return base::Error{
            fmt::format(
                "all {} steps were dropped because a value was not finite, so nothing was learned; try a smaller optim.lr, or "
                "--set train.debug_nonfinite=true, which names the operator",
                result.step),
            result.run, 1};
    if (!best_.any && !refused_.empty())
        return base::Error{"there are no best weights to test; the newest are in checkpoints/last. " + refused_, result.run, 1};
    if (!best_.any)
        return base::Error{
            "the validation loss was never finite, so there are no best weights to test; the newest are in checkpoints/last. Try "
            "a smaller optim.lr, or --set train.debug_nonfinite=true, which names the operator",
            result.run, 1};
    MILLRACE_LET(scores, test_scores(result));
    if (scores.empty() && loop_.stop() != nullptr) result.signal = loop_.stop()->load();
    result.stopped = result.signal != 0;
    if (result.stopped) return base::ok();
    if (!best_.members.empty()) result.chosen = best_.member;
    const double nothing = std::numeric_limits<double>::quiet_NaN();
    for (std::size_t k = 0; k < members; ++k) {
        const MemberBest own =
            k < best_.members.size() ? best_.members[k] : MemberBest{nothing, best_.epoch, best_.step, nothing, nothing};
        MemberResult member;
        member.validation_accuracy = own.accuracy;
        member.validation_loss = own.loss;
        member.best_epoch = own.epoch;
        member.test_accuracy = result.tested ? scores[k].accuracy : nothing;
        member.test_loss = result.tested ? scores[k].loss : nothing;
        if (k < scores.size()) member.more = scores[k].more;
        result.members.push_back(std::move(member));
    }
    if (const std::size_t best = best_member(result); best < scores.size()) result.classes = scores[best].classes;
    return base::ok();
}

Patience::Patience(Loop& loop, Staleness state, bool was_complete) : loop_(loop), state_(std::move(state)) {
    if (was_complete) end_if_exhausted();
}

base::Status Patience::on_epoch(EpochReport& report) {
    if (report.validation.empty()) return base::ok();
    best_before_ = state_.best;
    state_.best.resize(report.validation.size(), std::numeric_limits<double>::quiet_NaN());
    bool improved = false;
    for (std::size_t k = 0; k < report.validation.size(); ++k) {
        const Score& score = report.validation[k];
        const double value = merit(score, loop_.setup().settings.checkpoint.best_metric);
        // The first finite value of a member is an improvement on NaN.
        if (!std::isfinite(score.loss) || !std::isfinite(value) || value <= state_.best[k]) continue;
        state_.best[k] = value;
        improved = true;
    }
    state_.evaluations = improved ? 0 : state_.evaluations + 1;
    end_if_exhausted();
    return base::ok();
}

void Patience::end_if_exhausted() {
    const std::uint32_t patience = loop_.setup().settings.patience;
    if (patience == 0 || state_.evaluations < patience) return;
    loop_.end(fmt::format("validation did not improve in {} evaluation{}{} (train.patience = {})", state_.evaluations,
                          state_.evaluations == 1 ? "" : "s",
                          state_.best.size() > 1 ? fmt::format(" of {} members", state_.best.size()) : "", patience));
}

base::Status ConfusionPicture::on_epoch(EpochReport& report) {
    const std::size_t member = selection_.best().member;
    if (report.best && !report.validation.empty() && report.validation[member].classes)
        write(*report.validation[member].classes, member, data::Part::validation);
    return base::ok();
}

base::Status ConfusionPicture::on_stop(RunResult& result) {
    if (!result.stopped && result.classes)
        write(*result.classes, best_member(result), result.tested ? data::Part::test : data::Part::validation);
    return base::ok();
}

void ConfusionPicture::write(const models::ClassReport& classes, std::size_t member, data::Part part) {
    Engine& engine = loop_.engine();
    const auto names = models::class_names(engine.model().wants(), engine.source().fields(), classes.classes.size());
    std::string about =
        fmt::format("{} {} of {}, best weights", base::print_count(classes.samples), loop_.setup().unit, data::name_of(part));
    if (loop_.members() > 1) about += fmt::format(" of member {}", member);
    // A run is as good without it.
    const auto written = io::write_atomically(folder_ / "confusion.svg", models::confusion_svg(classes, names, about));
    if (!written.ok()) MILLRACE_LOG(warn, "{}", written.error().text());
}

double merit(const Score& score, const std::string& metric) {
    if (metric == "validation_loss") return -score.loss;
    if (metric == "validation_accuracy") return score.accuracy;
    const models::Figure* figure = score.more.find(metric);
    return figure != nullptr ? figure->value : std::numeric_limits<double>::quiet_NaN();
}

std::size_t best_member(const std::vector<Score>& scores, const std::string& metric) {
    std::size_t best = 0;
    const auto value = [&](std::size_t k) { return merit(scores[k], metric); };
    for (std::size_t k = 1; k < scores.size(); ++k)
        if (value(k) > value(best) || (std::isnan(value(best)) && !std::isnan(value(k)))) best = k;
    return best;
}

std::size_t best_member(const RunResult& result) {
    if (result.chosen) return *result.chosen;
    std::vector<Score> scores;
    for (const MemberResult& member : result.members)
        scores.push_back(std::isnan(member.validation_accuracy)
                             ? Score{member.test_loss, member.test_accuracy, member.more}
                             : Score{member.validation_loss, member.validation_accuracy, member.more});
    return best_member(scores, result.best_metric);
}

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
