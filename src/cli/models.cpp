#include "models/registry.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "cli/commands.h"

namespace millrace::cli {
namespace {

base::Result<int> run_models(bool as_json) {
    MILLRACE_LET(listed, models::list());
    if (as_json) {
        nlohmann::ordered_json json = nlohmann::ordered_json::array();
        for (const models::Listing& entry : listed)
            json.push_back({{"model", entry.model}, {"preset", entry.preset}, {"parameters", entry.parameters}});
        say(fmt::format("{}\n", json.dump(1)));
        return 0;
    }
    say(fmt::format("{:<18} {:<13} {:>12}\n", "model", "preset", "parameters"));
    for (const models::Listing& entry : listed)
        say(fmt::format("{:<18} {:<13} {:>12}\n", entry.model, entry.preset,
                        base::print_count(static_cast<std::uint64_t>(entry.parameters))));
    return 0;
}

}  // namespace

void add_models(const Command& program) {
    auto as_json = std::make_shared<bool>(false);
    const Command command = program.command("models", "list models, presets and parameter counts");
    command.flag("--json", *as_json, "print a list of {\"model\", \"preset\", \"parameters\"}");
    command.footer("Counts are for images of 28 x 28 pixels and 10 classes, and for vectors of 768 entries.");
    command.action([as_json] { return run_models(*as_json); });
}

}  // namespace millrace::cli
