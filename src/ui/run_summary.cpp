#include "ui/run_summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "io/line_file.h"
#include "record/run_directory.h"

namespace millrace::ui {
namespace {

constexpr std::size_t kMetricsPiece = std::size_t{1} << 20;
constexpr std::uint64_t kMostAtOnce = std::uint64_t{64} << 20;  ///< of a stream that nobody looked at before: its newest part
constexpr std::size_t kCurvePoints = 128;
constexpr std::size_t kManifestCap = std::size_t{4} << 20;
constexpr std::size_t kMostRecipeKeys = 2000;
constexpr std::size_t kKindReach = 40;  ///< a row begins with its kind

void flatten(const nlohmann::json& json, const std::string& prefix, std::map<std::string, std::string>& into) {
    for (const auto& [key, value] : json.items()) {
        const std::string name = prefix.empty() ? key : prefix + "." + key;
        if (into.size() >= kMostRecipeKeys) return;
        if (value.is_object())
            flatten(value, name, into);
        else
            into[name] = value.is_string() ? value.get<std::string>() : base::json_text(value);
    }
}

std::string value_of(const std::map<std::string, std::string>& recipe, const std::string& key) {
    const auto found = recipe.find(key);
    return found == recipe.end() ? std::string() : found->second;
}

std::int64_t whole(const std::string& text) {
    const double value = std::strtod(text.c_str(), nullptr);
    return value >= 0 && value < 1e15 ? static_cast<std::int64_t>(value) : 0;
}

std::int64_t whole_of(const record::MetricsRow& row, std::string_view key, std::int64_t otherwise) {
    const auto value = row.number(key);
    return value && *value >= 0 && *value < 1e15 ? static_cast<std::int64_t>(*value) : otherwise;
}

/// "validation_loss" is measured on the test data as "test_loss"; other figures keep their name.
std::string on_test(const std::string& metric) {
    constexpr std::string_view kValidation = "validation_";
    return metric.starts_with(kValidation) ? "test_" + metric.substr(kValidation.size()) : metric;
}

std::string text_of(const record::MetricsRow& row, std::string_view key) {
    const record::MetricValue* value = row.find(key);
    const auto* text = value != nullptr ? std::get_if<std::string>(value) : nullptr;
    return text != nullptr ? *text : std::string();
}

}  // namespace

std::string below(const std::string& run, std::string_view file) {
    return run == "." ? std::string(file) : fmt::format("{}/{}", run, file);
}

base::Result<bool> RunFollower::look(const io::HeldFolder& run) {
    const std::string before_state = state_, before_kind = about_.kind;
    const std::optional<std::string> before_manifest = manifest_;
    const std::uint64_t before = metrics_.offset;
    MILLRACE_TRY(read_manifest(run));
    if (const auto file = run.open_file("metrics.jsonl"); file.ok()) read_metrics(*file, run.path());
    const bool changed = !was_read_ || before != metrics_.offset || before_state != state_ || before_kind != about_.kind ||
                         before_manifest != manifest_;
    was_read_ = true;
    if (changed) finish();
    return changed;
}

base::Status RunFollower::read_manifest(const io::HeldFolder& run) {
    MILLRACE_LET(text, run.read_text("manifest.json", kManifestCap));
    if (text != manifest_) {
        MILLRACE_LET(manifest, record::parse_manifest(text, run.path() / "manifest.json"));
        manifest_ = std::move(text);
        about_ = {};
        about_.name = name_;
        about_.device = manifest.device;
        about_.started = manifest.started;
        about_.ended = manifest.ended;
        about_.state = record::name_of(manifest.status);
        about_.reason = manifest.reason;
        about_.command = fmt::format("{}", fmt::join(manifest.command, " "));
        about_.starts = 1 + manifest.resumed.size();
        const auto recipe = base::json_from(manifest.recipe);
        if (recipe.is_object()) flatten(recipe, "", about_.recipe);
        about_.model = value_of(about_.recipe, "model.name");
        if (const std::string preset = value_of(about_.recipe, "model.preset"); !preset.empty()) about_.model += " " + preset;
        about_.data = value_of(about_.recipe, "data.path");
        about_.epochs = whole(value_of(about_.recipe, "train.epochs"));
        about_.kind = run.open_file("trace.bin").ok() ? "recording" : "training";
    }
    if (about_.kind == "training" && (run.open_file("sweep.db").ok() || run.open_file("sweep.html").ok())) about_.kind = "study";
    state_ = about_.state == "running" && !run.is_locked(".lock") && !run.is_locked("") ? "killed" : about_.state;
    return base::ok();
}

void RunFollower::read_metrics(const io::HeldFile& file, const io::Path& place) {
    if (file.size < metrics_.offset) metrics_ = {};  // cut back by a resumed run
    if (file.size - metrics_.offset > kMostAtOnce) {
        metrics_.offset = file.size - kMostAtOnce;
        metrics_.pending.clear();
        metrics_.skipping = true;  // the line in whose middle that is
    }
    while (metrics_.offset < file.size) {
        const auto piece = io::read_piece(file, metrics_.offset, kMetricsPiece, place);
        if (!piece.ok() || piece->empty()) return;
        metrics_.offset += piece->size();
        std::string_view rest(*piece);
        while (!rest.empty()) {
            const std::size_t end = rest.find('\n');
            if (!metrics_.skipping) metrics_.pending += rest.substr(0, end);
            if (metrics_.pending.size() > io::kLineCap) {
                metrics_.pending.clear();
                metrics_.skipping = true;
            }
            if (end == std::string_view::npos) break;
            if (!metrics_.skipping) take(metrics_.pending);
            metrics_.pending.clear();
            metrics_.skipping = false;
            rest.remove_prefix(end + 1);
        }
    }
}

void RunFollower::take(std::string_view line) {
    const std::string_view head = line.substr(0, kKindReach);
    // Rows by the clock are most of the file; of them the newest says it all.
    if (head.find("\"interval\"") != std::string_view::npos)
        metrics_.last = line;
    else if (head.find("\"components\"") == std::string_view::npos)
        take_row(line);
}

void RunFollower::take_row(std::string_view line) {
    const auto row = record::parse_row(line);
    if (!row) return;
    RunScores& found = metrics_.found;
    const std::string kind = text_of(*row, "kind");
    if (kind == "test") {
        std::string wanted = on_test(found.metric);
        if (!row->number(wanted)) wanted = row->number("test_accuracy") ? "test_accuracy" : "test_loss";
        found.test_metric = wanted;
        found.test = row->number(wanted);
        return;
    }
    if (kind != "epoch") return;
    found.epoch = whole_of(*row, "epoch", found.epoch);
    found.step = whole_of(*row, "step", found.step);
    const double seconds = row->number("seconds").value_or(0);
    if (seconds < metrics_.seconds) metrics_.seconds_before += metrics_.seconds;  // another start
    if (std::isfinite(seconds)) metrics_.seconds = seconds;
    found.loss = row->number("validation_loss");
    if (!found.loss) found.loss = row->number("train_loss");
    found.speed = row->number("samples_per_second");
    if (found.loss) add_point(static_cast<double>(found.epoch), *found.loss);
    std::string metric = value_of(about_.recipe, "checkpoint.best_metric");
    if (metric.empty() || !row->number(metric))
        metric = row->number("validation_accuracy") ? "validation_accuracy" : "validation_loss";
    const record::MetricValue* best = row->find("best");
    const bool* is_best = best != nullptr ? std::get_if<bool>(best) : nullptr;
    if (!row->number(metric) || (is_best != nullptr && !*is_best)) return;
    found.metric = metric;
    found.best = row->number(metric);
    found.best_epoch = found.epoch;
}

void RunFollower::add_point(double epoch, double loss) {
    if (metrics_.epochs_seen++ % metrics_.stride != 0) return;
    auto& curve = metrics_.found.curve;
    curve.emplace_back(epoch, loss);
    if (curve.size() < kCurvePoints) return;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < curve.size(); i += 2) curve[kept++] = curve[i];
    curve.resize(kept);
    metrics_.stride *= 2;
}

void RunFollower::finish() {
    summary_ = about_;
    summary_.state = state_;
    const RunScores& found = metrics_.found;
    static_cast<RunScores&>(summary_) = found;
    summary_.seconds = metrics_.seconds_before + metrics_.seconds;
    const auto last = record::parse_row(metrics_.last);
    const double epoch_step = static_cast<double>(found.step);
    if (last && whole_of(*last, "step", 0) > found.step) {
        summary_.step = whole_of(*last, "step", 0);
        const double seconds = last->number("seconds").value_or(0);
        const double before = metrics_.seconds_before + (seconds < metrics_.seconds ? metrics_.seconds : 0);
        if (std::isfinite(seconds)) summary_.seconds = before + seconds;
        if (!summary_.loss) summary_.loss = last->number("loss");
        if (!summary_.speed) summary_.speed = last->number("samples_per_second");
    }
    if (found.epoch > 0 && epoch_step > 0 && summary_.epochs > 0) {
        const double steps = epoch_step / static_cast<double>(found.epoch) * static_cast<double>(summary_.epochs);
        summary_.share = std::clamp(static_cast<double>(summary_.step) / steps, 0.0, 1.0);
    }
    const std::int64_t all = whole(value_of(about_.recipe, "train.steps"));
    if (all > 0) summary_.share = std::clamp(static_cast<double>(summary_.step) / static_cast<double>(all), summary_.share, 1.0);
    if (summary_.state == "finished") summary_.share = 1;
}

nlohmann::ordered_json run_json(const RunSummary& run, bool with_recipe) {
    nlohmann::ordered_json json{{"name", run.name},       {"kind", run.kind},    {"state", run.state}, {"model", run.model},
                                {"data", run.data},       {"epoch", run.epoch},  {"step", run.step},   {"share", run.share},
                                {"seconds", run.seconds}, {"device", run.device}};
    if (run.epochs > 0) json["epochs"] = run.epochs;
    if (run.best) json["metric"] = run.metric, json["best"] = *run.best;
    if (run.test) json["test_metric"] = run.test_metric, json["test"] = *run.test;
    if (run.best) json["best_epoch"] = run.best_epoch;
    if (run.speed) json["samples_per_second"] = *run.speed;
    if (run.loss) json["loss"] = *run.loss;
    json["started"] = run.started;
    if (!run.ended.empty()) json["ended"] = run.ended;
    if (!run.reason.empty()) json["reason"] = run.reason;
    json["command"] = run.command;
    json["starts"] = run.starts;
    if (with_recipe) json["recipe"] = run.recipe;
    json["curve"] = run.curve;
    return json;
}

}  // namespace millrace::ui
