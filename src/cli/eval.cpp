#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/json.h"
#include "cli/commands.h"
#include "io/file.h"
#include "train/console.h"
#include "train/evaluate.h"
#include "train/run_settings.h"

namespace millrace::cli {
namespace {

struct EvalArguments {
    std::string run, device, data, split, plot;
    std::vector<std::string> texts;
    std::string prompt;
    std::int32_t tokens = 50, top_k = 0;
    double temperature = 1;
    std::uint64_t seed = 1;
    std::optional<std::int64_t> plot_sample;
    std::vector<models::EvalOption> options;  ///< of all families, their values where given
    bool json = false;
};

constexpr std::size_t kWidestConfusion = 1024;  ///< classes; of more, a list per label takes too much room

/// Figures whose denominator is 0 are null.
void add_classes(nlohmann::ordered_json& to, const models::ClassReport& report, const std::vector<std::string>& names) {
    const auto figure = [](double value, std::uint64_t denominator) {
        return denominator > 0 ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
    };
    const std::size_t count = report.classes.size();
    auto classes = nlohmann::ordered_json::array(), confusion = classes;
    for (std::size_t i = 0; i < count; ++i) {
        const models::ClassFigures& c = report.classes[i];
        nlohmann::ordered_json entry{{"class", i}};
        if (i < names.size()) entry["name"] = names[i];
        entry["samples"] = c.samples;
        entry["predicted"] = c.predicted;
        entry["precision"] = figure(c.precision, c.predicted);
        entry["recall"] = figure(c.recall, c.samples);
        entry["f1"] = figure(c.f1, c.samples + c.predicted);
        classes.push_back(std::move(entry));
        if (count > kWidestConfusion) continue;
        auto& row = confusion.emplace_back(nlohmann::ordered_json::array());
        for (std::size_t prediction = 0; prediction < count; ++prediction) row.push_back(report.at(i, prediction));
    }
    to["macro_f1"] = report.macro_f1;
    to["mcc"] = report.mcc;
    to["classes"] = std::move(classes);
    if (count > kWidestConfusion)
        for (const auto& [pair, rows] : report.confusion) confusion.push_back({pair.first, pair.second, rows});
    to[count > kWidestConfusion ? "confusion_counts" : "confusion"] = std::move(confusion);
}

void print_json(const train::EvaluateReport& report, const std::vector<std::string>& plots) {
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
        if (score.classes) add_classes(to, *score.classes, report.class_names);
        for (std::size_t d = 0; d < score.domains.size(); ++d) {
            nlohmann::ordered_json domain{{"domain", report.domains[d]}, {"loss", score.domains[d].loss}};
            for (const models::Figure& figure : score.domains[d].more.figures) domain[figure.name] = figure.value;
            to["domains"].push_back(std::move(domain));
        }
    };
    add(json, report.members[report.best]);
    json["members"] = nlohmann::ordered_json::array();
    for (const train::Score& score : report.members) add(json["members"].emplace_back(), score);
    if (!plots.empty()) json["plots"] = plots;
    say(fmt::format("{}\n", base::json_text(json, 1)));
}

void print_text(const train::EvaluateReport& report) {
    say(fmt::format("{} {}, weights after step {}, on {} {} {} of {} ({})\n", report.model, report.preset, report.step,
                    report.samples, data::name_of(report.part), report.unit, report.data, report.device));
    for (std::size_t k = 0; k < report.members.size(); ++k) {
        if (report.members.size() > 1) say(fmt::format("member {:3}: ", k));
        const train::Score& score = report.members[k];
        if (report.classifies)
            say(fmt::format("accuracy {:.2f} %, loss {}{}{}\n", 100 * score.accuracy, train::loss_text(score.loss),
                            score.more.summary.empty() ? "" : ", ", score.more.summary));
        else
            say(fmt::format("loss {} {}\n", train::loss_text(score.loss), score.more.summary));
        for (const std::string& note : score.more.notes) say(fmt::format("{}\n", note));
        for (std::size_t d = 0; d < score.domains.size(); ++d)
            say(fmt::format("  {}: loss {} {}\n", report.domains[d], train::loss_text(score.domains[d].loss),
                            score.domains[d].more.summary));
    }
    if (report.members.size() > 1) say(fmt::format("training chose member {}\n", report.best));
    if (!report.about.empty()) say(fmt::format("{}\n", report.about));
    if (const auto& classes = report.members[report.best].classes) say("\n" + models::class_table(*classes, report.class_names));
}

/// Whether `folder` is one, or can become one.
base::Status check_plots(const EvalArguments& given) {
    std::vector<std::pair<std::string, std::optional<std::int64_t>>> numbers{{"--plot-sample", given.plot_sample}};
    for (const models::EvalOption& option : given.options) numbers.emplace_back(option.name, option.value);
    for (const auto& [option, value] : numbers) {
        if (value && given.plot.empty()) return base::Error{"says what --plot draws, and there is no --plot", option};
        if (value && *value < 0) return base::Error{fmt::format("{} is below 0", *value), option};
    }
    std::error_code failed;
    if (!given.plot.empty() && std::filesystem::exists(given.plot, failed) && !std::filesystem::is_directory(given.plot, failed))
        return base::Error{"is a file, and the pictures need a folder", given.plot};
    return base::ok();
}

/// The options of the run's family; those of others must not be given.
base::Result<std::vector<models::EvalOption>> family_options(const EvalArguments& given) {
    MILLRACE_LET(best, train::load_best(given.run, given.device, given.data));
    std::vector<models::EvalOption> mine = best.family->picture_options;
    for (const models::EvalOption& option : given.options) {
        const auto at = std::find_if(mine.begin(), mine.end(), [&](const auto& own) { return own.name == option.name; });
        if (at != mine.end())
            at->value = option.value;
        else if (option.value)
            return base::Error{fmt::format("{} has no such option", best.family->name), option.name};
    }
    return mine;
}

base::Result<std::vector<std::string>> write_plots(const std::vector<models::Picture>& pictures, const EvalArguments& given) {
    if (pictures.empty()) return std::vector<std::string>{};
    const std::filesystem::path folder = given.plot;
    std::error_code failed;
    std::filesystem::create_directories(folder, failed);
    if (failed) return io::system_error("cannot make the folder", folder, failed.value());
    std::vector<std::string> written;
    for (const models::Picture& picture : pictures) {
        const std::filesystem::path file = folder / fmt::format("sample-{}-{}.svg", given.plot_sample.value_or(0), picture.name);
        MILLRACE_TRY(io::write_atomically(file, picture.svg));
        written.push_back(file.string());
    }
    return written;
}

/// Every "-" becomes the lines of standard input.
std::vector<std::string> texts_of(const std::vector<std::string>& given) {
    std::vector<std::string> texts;
    for (const std::string& text : given) {
        if (text != "-") {
            texts.push_back(text);
            continue;
        }
        for (std::string line; std::getline(std::cin, line);) {
            if (!line.empty() && line.back() == '\r') line.pop_back();
            texts.push_back(line);
        }
    }
    return texts;
}

/// What family functions need of the best weights.
base::Result<models::CheckpointRequest> checkpoint_of(const train::BestWeights& best) {
    MILLRACE_LET(device, train::choose_device(best.recipe.text("device")));
    MILLRACE_LET(precision, train::choose_precision(best.recipe.text("precision"), device));
    return models::CheckpointRequest{best.recipe, best.checkpoint, device, precision};
}

/// What answers of whatever kind begin with.
nlohmann::ordered_json answer_json(const EvalArguments& given, const train::BestWeights& best, const std::string& device) {
    return {{"run", given.run},
            {"model", best.recipe.text("model.name")},
            {"preset", best.recipe.text("model.preset")},
            {"device", device},
            {"step", best.state.step}};
}

base::Result<models::TextReport> answer(const train::BestWeights& best, const std::vector<std::string>& texts,
                                        const EvalArguments& given) {
    if (best.family->answer == nullptr) return base::Error{fmt::format("{} answers no texts", best.family->name), given.run};
    MILLRACE_LET(checkpoint, checkpoint_of(best));
    auto answered = best.family->answer({checkpoint, texts, given.json});
    if (!answered.ok() && answered.error().place.empty())
        return base::Error{answered.error().message, given.run, answered.error().exit_status};
    return answered;
}

base::Result<int> run_texts(const EvalArguments& given) {
    if (!given.split.empty() || !given.plot.empty())
        return base::Error{fmt::format("{} is about the data; with --text nothing of it is scored or drawn",
                                       given.split.empty() ? "--plot" : "--split")};
    const std::vector<std::string> texts = texts_of(given.texts);
    if (texts.empty()) return base::Error{"standard input holds no text", "--text -"};
    MILLRACE_LET(best, train::load_best(given.run, given.device, given.data));
    MILLRACE_LET(answered, answer(best, texts, given));
    if (!given.json) {
        for (const models::TextAnswer& answer : answered.answers) say(answer.answer + "\n");
        return 0;
    }
    nlohmann::ordered_json json = answer_json(given, best, answered.device);
    json["seconds"] = answered.seconds;
    json["answers"] = nlohmann::ordered_json::array();
    for (const models::TextAnswer& answer : answered.answers) {
        nlohmann::ordered_json entry{{"text", answer.text},       {"answer", answer.answer},   {"tokens", answer.tokens},
                                     {"unknown", answer.unknown}, {"nearest_cosine", nullptr}, {"nearest_target", nullptr}};
        if (answer.cosine) {
            entry["nearest_cosine"] = *answer.cosine;
            entry["nearest_target"] = answer.nearest;
        }
        json["answers"].push_back(std::move(entry));
    }
    say(base::json_text(json, 1) + "\n");
    return 0;
}

base::Result<int> run_prompt(const EvalArguments& given) {
    if (!given.split.empty() || !given.plot.empty() || !given.texts.empty())
        return base::Error{"--split, --plot and --text have no meaning beside --prompt"};
    MILLRACE_LET(best, train::load_best(given.run, given.device, given.data));
    if (best.family->go_on == nullptr)
        return base::Error{fmt::format("{} writes no text; a run of a language model would be right", best.family->name),
                           given.run};
    MILLRACE_LET(checkpoint, checkpoint_of(best));
    MILLRACE_LET(report, best.family->go_on({checkpoint, given.prompt, given.tokens, given.temperature, given.top_k, given.seed,
                                             train::best_member(best)}));
    if (!given.json) {
        say(fmt::format("{} {}\n", given.prompt, report.text));
        return 0;
    }
    nlohmann::ordered_json json = answer_json(given, best, report.device);
    json.update({{"prompt", given.prompt},
                 {"prompt_tokens", report.prompt_tokens},
                 {"unknown", report.unknown},
                 {"text", report.text},
                 {"tokens", report.tokens},
                 {"seconds", report.seconds}});
    say(base::json_text(json, 1) + "\n");
    return 0;
}

base::Result<int> run_eval(const EvalArguments& given) {
    std::signal(SIGPIPE, SIG_IGN);  // a reader that has seen enough is no failure
    MILLRACE_TRY(check_plots(given));
    if (!given.prompt.empty()) return run_prompt(given);
    if (!given.texts.empty()) return run_texts(given);
    std::optional<data::Part> part;
    if (!given.split.empty()) part = given.split == "validation" ? data::Part::validation : data::Part::test;
    std::optional<train::PictureRequest> pictures;
    if (!given.plot.empty()) {
        MILLRACE_LET(options, family_options(given));
        pictures = {given.plot_sample.value_or(0), std::move(options)};
    }
    MILLRACE_LET(evaluated, train::evaluate_run(given.run, part, given.device, given.data, pictures));
    MILLRACE_LET(plots, write_plots(evaluated.pictures, given));
    if (given.json) {
        print_json(evaluated, plots);
        return 0;
    }
    print_text(evaluated);
    for (const std::string& file : plots) say(fmt::format("wrote {}\n", file));
    return 0;
}

}  // namespace

void add_eval(const Command& program) {
    auto [command, given] = program.command<EvalArguments>("eval", "evaluate the best checkpoint of a run", run_eval);
    command.option("RUN", given.run, "run directory").required();
    command.option("--device", given.device, "auto, cpu or cuda").one_of({"auto", "cpu", "cuda"});
    command.option("--split", given.split, "test or validation; test where the data has such a part unless given")
        .one_of({"test", "validation"});
    command.option("--data PATH", given.data, "the data set when it has moved, or another one");
    std::string drawing;
    for (const models::Family& family : models::families()) {
        if (family.pictures == nullptr) continue;
        drawing += (drawing.empty() ? "" : ", ") + family.name;
        for (const models::EvalOption& option : family.picture_options) given.options.push_back(option);
    }
    command.option("--plot DIR", given.plot, fmt::format("draw pictures of a sample as SVG ({})", drawing));
    command.option("--plot-sample N", given.plot_sample, "which sample of the split, from 0; 0 unless given");
    for (models::EvalOption& option : given.options)
        command.option(fmt::format("{} {}", option.name, option.placeholder), option.value, option.meaning);
    command.option("--text TEXT", given.texts, "answer this text instead, as often as given; - reads lines from standard input");
    const Option prompt = command.option("--prompt TEXT", given.prompt, "language models: write how this text goes on");
    command.option("--tokens N", given.tokens, "of the text to write").needs(prompt);
    command.option("--temperature X", given.temperature, "of the draw; 0: always the likeliest token").needs(prompt);
    command.option("--top-k N", given.top_k, "draw among so many of the likeliest tokens; 0: all").needs(prompt);
    command.option("--seed N", given.seed, "another seed draws another text").needs(prompt);
    command.flag("--json", given.json, "print JSON");
    command.footer(
        "Examples:\n  millrace eval runs/demo --split validation\n  millrace eval runs/demo --plot pictures --plot-sample 7\n"
        "  millrace eval runs/demo --text \"The shepherd broke a window.\"\n"
        "  millrace eval runs/words --prompt \"the river\" --temperature 0.8 --top-k 40\n\n"
        "MILLRACE_CPU=sse2|avx2|avx512|neon forces the kernels of the CPU instead of the fastest that it can run.");
}

}  // namespace millrace::cli
