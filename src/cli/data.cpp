#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/log.h"
#include "cli/commands.h"
#include "data/make.h"

namespace millrace::cli {
namespace {

struct MakeArguments {
    std::string kind, out;
    data::GarmentsOptions options;
};

int run_make(const MakeArguments& given) {
    const bool live = base::stderr_is_terminal();
    data::Progress progress;
    if (live)
        progress = [](std::uint64_t done, std::uint64_t total) {
            base::write_to_terminal(fmt::format("\r\x1b[Kdrawn {} of {} images", done, total));
        };
    const auto made = data::make_garments(given.out, given.options, progress);
    if (live) base::write_to_terminal("\r\x1b[K");
    if (!made.ok()) return report(made.error());
    say(fmt::format("{} {}: {} training and {} test images, seed {}\n", given.out,
                    *made == data::MakeOutcome::kWritten ? "written" : "holds this set already", given.options.train,
                    given.options.test, given.options.seed));
    return 0;
}

}  // namespace

void add_data(CLI::App& app, Context& context) {
    auto given = std::make_shared<MakeArguments>();
    CLI::App* command = app.add_subcommand("data", "data sets")->require_subcommand(1);
    CLI::App* make = command->add_subcommand("make", "write a built-in data set in the format real data comes in");
    make->add_option("KIND", given->kind, "garments: ten kinds of clothing, 28 x 28 pixels, as four IDX files")
        ->required()
        ->check(CLI::IsMember({"garments"}));
    make->add_option("--out", given->out, "folder to write")->required()->type_name("PATH");
    make->add_option("--train", given->options.train, "training images")->capture_default_str();
    make->add_option("--test", given->options.test, "test images")->capture_default_str();
    make->add_option("--seed", given->options.seed, "another seed draws another set")->capture_default_str();
    make->footer("Example:\n  millrace data make garments --out data/garments");
    make->callback([given, &context] { context.exit_status = run_make(*given); });
}

}  // namespace millrace::cli
