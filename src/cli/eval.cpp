#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/commands.h"
#include "train/console.h"
#include "train/evaluate.h"

namespace millrace::cli {
namespace {

struct EvalArguments {
    std::string run, device, data, split;
    bool json = false;
};

void print_json(const train::EvaluateReport& report) {
    nlohmann::ordered_json json{{"run", report.run},         {"model", report.model},
                                {"preset", report.preset},   {"parameters", report.parameters},
                                {"device", report.device},   {"split", data::name_of(report.part)},
                                {"samples", report.samples}, {"step", report.step},
                                {"seconds", report.seconds}};
    json["member"] = report.best;
    const auto add = [&](nlohmann::ordered_json& to, const train::Score& score) {
        if (report.classifies) to["accuracy"] = score.accuracy;
        to["loss"] = score.loss;
        for (const models::Figure& figure : score.more.figures) to[figure.name] = figure.value;
    };
    add(json, report.members[report.best]);
    json["members"] = nlohmann::ordered_json::array();
    for (const train::Score& score : report.members) add(json["members"].emplace_back(), score);
    say(fmt::format("{}\n", json.dump(1)));
}

void print_text(const train::EvaluateReport& report) {
    say(fmt::format("{} {}, weights after step {}, on {} {} {} of {} ({})\n", report.model, report.preset, report.step,
                    report.samples, data::name_of(report.part), report.unit, report.data, report.device));
    for (std::size_t k = 0; k < report.members.size(); ++k) {
        if (report.members.size() > 1) say(fmt::format("member {:3}: ", k));
        const train::Score& score = report.members[k];
        if (report.classifies)
            say(fmt::format("accuracy {:.2f} %, loss {}\n", 100 * score.accuracy, train::loss_text(score.loss)));
        else
            say(fmt::format("loss {} {}\n", train::loss_text(score.loss), score.more.summary));
        for (const std::string& note : score.more.notes) say(fmt::format("{}\n", note));
    }
    if (report.members.size() > 1) say(fmt::format("training chose member {}\n", report.best));
}

int run_eval(const EvalArguments& given) {
    std::optional<data::Part> part;
    if (!given.split.empty()) part = given.split == "validation" ? data::Part::validation : data::Part::test;
    const auto evaluated = train::evaluate_run(given.run, part, given.device, given.data);
    if (!evaluated.ok()) return report(evaluated.error());
    if (given.json)
        print_json(*evaluated);
    else
        print_text(*evaluated);
    return 0;
}

}  // namespace

void add_eval(CLI::App& app, Context& context) {
    auto given = std::make_shared<EvalArguments>();
    CLI::App* command = app.add_subcommand("eval", "evaluate the best checkpoint of a run");
    command->add_option("RUN", given->run, "run directory")->required();
    command->add_option("--device", given->device, "auto, cpu or cuda")->check(CLI::IsMember({"auto", "cpu", "cuda"}));
    command->add_option("--split", given->split, "test or validation; test where the data has such a part unless given")
        ->check(CLI::IsMember({"test", "validation"}));
    command->add_option("--data", given->data, "folder of the data set when it has moved")->type_name("DIR");
    command->add_flag("--json", given->json, "print JSON");
    command->footer("Example:\n  millrace eval runs/demo --split validation");
    command->callback([given, &context] { context.exit_status = run_eval(*given); });
}

}  // namespace millrace::cli
