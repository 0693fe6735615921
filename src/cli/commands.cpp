#include "cli/commands.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/nearest.h"
#include "base/version.h"

namespace millrace::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  millrace data make garments --out data/garments
  millrace train recipes/collective-debug.toml
  millrace train recipes/collective-debug.toml --set train.epochs=10 --set optim.lr=3e-4 --out runs/slow
  millrace train recipes/collective-debug.toml --set train.epochs=10 --set optim.lr=3e-4 --out runs/slow --resume
  millrace eval runs/slow

Exit status: 0 fine, 1 finding, 2 usage or bad input, 4 no data, 128 + n after signal n.)";

/// What was wrong with the arguments and where help is.
std::string usage_text(const CLI::App& app, const std::string& command, const std::string& problem) {
    std::vector<std::string> names;
    for (const CLI::App* each : app.get_subcommands({})) names.push_back(each->get_name());
    if (std::find(names.begin(), names.end(), command) != names.end()) return fmt::format("{}\nTry: millrace {} --help", problem, command);
    if (command.empty() || command.front() == '-') return problem + "\nTry: millrace --help";
    const std::string nearest = base::nearest_name(command, names);
    return fmt::format("unknown command '{}'; {}", command, nearest.empty() ? "millrace --help lists them" : fmt::format("did you mean {}?", nearest));
}

}  // namespace

int report(const base::Error& error) {
    fmt::print(stderr, "millrace: {}\n", error.text());
    return error.exit_status;
}

int run(int argc, char** argv) {
    CLI::App app{"Millrace trains small and middle-sized models at the speed of the hardware.", "millrace"};
    app.footer(kExamples);
    app.set_version_flag("--version", std::string("millrace ") + base::version());
    app.require_subcommand(1);
    Context context{argc, argv, 0};
    add_train(app, context);
    add_eval(app, context);
    add_models(app, context);
    add_data(app, context);
    add_bench(app, context);
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& done) {
        return app.exit(done);  // --help, --version
    } catch (const CLI::ParseError& problem) {
        fmt::print(stderr, "millrace: {}\n", usage_text(app, argc > 1 ? argv[1] : "", problem.what()));
        return 2;
    }
    return context.exit_status;
}

}  // namespace millrace::cli
