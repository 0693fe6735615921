#include "models/families.h"

#include "models/baselines/baseline.h"
#include "models/baselines/widths.h"

namespace millrace::models {
namespace {

// Parameters of the collective (r1) that a preset is matched to.
constexpr std::int64_t kDebugTarget = 559738, kPhase1Target = 2884042;

base::Schema schema_of(const std::string& preset) {
    base::Schema keys;
    keys.integer("target_parameters", preset == "debug" ? kDebugTarget : kPhase1Target,
                 "number of parameters that the width is solved for")
        .between(1, 1e12);
    keys.integers("widths", {}, "widths of the hidden layers; empty: solved for target_parameters")
        .between(1, 1 << 20)
        .length(0, 256);
    keys.real("dropout", 0.1, "after every hidden layer").at_least(0).below(1);
    return keys;
}

template <BaselineKind kKind>
base::Result<std::unique_ptr<Model>> make_baseline(const base::Recipe& recipe, const data::Fields& fields) {
    BaselineConfig config;
    config.residual = is_residual(kKind);
    const data::Field *image = data::find_field(fields, "image"), *label = data::find_field(fields, "label");
    if (image != nullptr) config.features = image->width;
    if (label != nullptr) config.classes = label->limit;
    config.dropout = static_cast<float>(recipe.real("model.dropout"));
    for (std::int64_t width : recipe.integers("model.widths")) config.widths.push_back(static_cast<std::int32_t>(width));
    if (config.widths.empty()) {
        auto solved = solve_widths(kKind, recipe.integer("model.target_parameters"), config.features, config.classes);
        if (!solved.ok()) return recipe.bad("model.target_parameters", solved.error().message);
        config.widths = std::move(solved).value();
    }
    return std::unique_ptr<Model>(std::make_unique<Baseline>(std::move(config)));
}

template <BaselineKind kKind>
Family family() {
    return {name_of(kKind), {"debug", "phase1"}, schema_of, make_baseline<kKind>};
}

}  // namespace

std::vector<Family> baseline_families() {
    return {family<BaselineKind::shallow>(),   family<BaselineKind::balanced>(),    family<BaselineKind::deep>(),
            family<BaselineKind::very_deep>(), family<BaselineKind::deep_resnet>(), family<BaselineKind::very_deep_resnet>()};
}

}  // namespace millrace::models
