#include <fmt/format.h>
#include <unistd.h>

#include <memory>

#include "base/log.h"
#include "cli/commands.h"
#include "data/images/make_garments.h"
#include "data/pairs/make_pairs.h"

namespace millrace::cli {
namespace {

struct MakeArguments {
    std::string kind, out;
    std::uint64_t seed = data::kGarmentSeed;
    data::GarmentsOptions garments;
    data::PairsOptions pairs;
    std::vector<std::pair<Option, const char*>> options;  ///< those that belong to one kind alone
};

const char* outcome(data::MakeOutcome made) { return made == data::MakeOutcome::kWritten ? "written" : "holds this set already"; }

int make_garments(const MakeArguments& given) {
    const bool live = base::stderr_is_terminal();
    data::Progress progress;
    if (live)
        progress = [](std::uint64_t done, std::uint64_t total) {
            base::write_to_terminal(fmt::format("\r\x1b[Kdrawn {} of {} images", done, total));
        };
    data::GarmentsOptions options = given.garments;
    options.seed = given.seed;
    const auto made = data::make_garments(given.out, options, progress);
    if (live) base::write_to_terminal("\r\x1b[K");
    if (!made.ok()) return report(made.error());
    say(fmt::format("{} {}: {} training and {} test images, seed {}\n", given.out, outcome(*made), options.train, options.test,
                    options.seed));
    return 0;
}

int make_pairs(const MakeArguments& given) {
    data::PairsOptions options = given.pairs;
    options.seed = given.seed;
    const auto made = data::make_pairs(given.out, options);
    if (!made.ok()) return report(made.error());
    say(fmt::format("{} {}: {} pairs of sentences, vectors of {} dimensions, seed {}\n", given.out, outcome(*made), options.count,
                    options.dimensions, options.seed));
    return 0;
}

int run_make(const MakeArguments& given) {
    for (const auto& [option, kind] : given.options)
        if (option.is_given() && given.kind != kind)
            return report(base::Error{fmt::format("{} belongs to {}, not to {}", option.name(), kind, given.kind)});
    return given.kind == "pairs" ? make_pairs(given) : make_garments(given);
}

}  // namespace

void add_data(const Command& program) {
    auto given = std::make_shared<MakeArguments>();
    const Command command = program.command("data", "data sets");
    command.require_command();
    const Command make = command.command("make", "write a built-in data set in the format real data comes in");
    make.option("KIND", given->kind,
                "garments: ten kinds of clothing, 28 x 28 pixels, as four IDX files; pairs: sentences and their "
                "consequences, with vectors, as pairs.safetensors and pairs.jsonl")
        .required()
        .one_of({"garments", "pairs"});
    make.option("--out", given->out, "folder to write").required().placeholder("PATH");
    make.option("--seed", given->seed, "another seed draws another set").show_default();
    auto add = [&](const char* kind, const char* name, std::uint32_t& value, const char* meaning) {
        given->options.emplace_back(make.option(name, value, fmt::format("{}: {}", kind, meaning)).show_default(), kind);
    };
    add("garments", "--train", given->garments.train, "training images");
    add("garments", "--test", given->garments.test, "test images");
    add("pairs", "--count", given->pairs.count, "pairs of sentences");
    add("pairs", "--dimensions", given->pairs.dimensions, "width of a sentence vector, 1 to 16384");
    make.footer("Examples:\n  millrace data make garments --out data/garments\n  millrace data make pairs --out data/pairs");
    make.action([given] { return run_make(*given); });
}

}  // namespace millrace::cli
