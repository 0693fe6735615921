#include "ui/run_json.h"

#include <nlohmann/json.hpp>

namespace millrace::ui {

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
