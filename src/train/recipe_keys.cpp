#include "train/recipe_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/split.h"
#include "data/load.h"
#include "io/recipe_file.h"
#include "models/registry.h"

namespace millrace::train {
namespace {

void add_train_keys(base::Schema& schema) {
    schema.integer("train.epochs", 5, "passes over the training data").between(1, 1000000);
    schema.integer("train.steps", 0, "stop after this many steps in all; 0: after train.epochs").between(0, 4294967295.0);
    schema
        .integer(
            "train.patience", 0,
            "end the run when no member's validation has improved for this many evaluations, by checkpoint.best_metric; 0: off")
        .between(0, 1000000);
    schema.integer("train.batch", 32, "rows of one batch").between(1, 1 << 20);
    schema.integer("train.accumulate", 1, "batches of one step").between(1, 1 << 16);
    schema
        .integer("train.micro_batch", 0, "rows that go through the model at once, a divisor of train.batch; 0: the most that fit")
        .between(0, 1 << 20);
    schema.real("train.dropout_scale", 1, "factor on every dropout rate of the model").between(0, 1000).per_member();
    schema.bytes("train.memory", "0B", "memory that the plan may take on the device; 0B: what is free");
    schema.boolean("train.capture", true, "replay the step as one launch where the device can");
    schema.choice("train.f32", "strict", {"strict", "tf32"},
                  "products of a GPU in f32; tf32: operands rounded to ten bits of mantissa, several times as fast");
    schema.duration("train.log_interval", "1s", "time covered by one row of metrics.jsonl").between(0.001, 86400);
    schema.boolean("train.debug_nonfinite", false, "run record by record and name the first value that is not finite (slow)");
    schema.integer("eval.batch", 500, "rows evaluated at once, or as many as fit").between(1, 1 << 20);
}

void add_optim_keys(base::Schema& schema) {
    schema.choice("optim.name", "adam", {"adam", "adamw", "sgd"}, "update rule");
    schema.real("optim.lr", 1e-3, "learning rate").at_least(0).per_member();
    schema.real("optim.weight_decay", 0, "decay of weights: in the gradient (adam, sgd) or apart from it (adamw)")
        .at_least(0)
        .per_member();
    schema.boolean("optim.decay_biases", true, "false: biases and the vectors of norms do not decay");
    schema.real("optim.beta1", 0.9, "adam, adamw: memory of the mean").at_least(0).below(1).per_member();
    schema.real("optim.beta2", 0.999, "adam, adamw: memory of the square").at_least(0).below(1).per_member();
    schema.real("optim.eps", 1e-8, "adam, adamw: added to the root").above(0).per_member();
    schema.real("optim.momentum", 0.9, "sgd: memory of the gradient").at_least(0).below(1).per_member();
    schema.real("optim.clip_norm", 0, "largest norm of all gradients together; 0: no limit").at_least(0).per_member();
    schema.choice("optim.schedule", "constant", {"constant", "cosine", "step"}, "course of the learning rate after the warm-up");
    schema.integer("optim.warmup_steps", 0, "steps over which the learning rate rises").between(0, 4294967295.0).per_member();
    schema.real("optim.warmup_epochs", 0, "the warm-up in epochs instead of steps; give one of the two").at_least(0).per_member();
    schema.real("optim.floor", 0, "cosine: share of the learning rate left at the end").between(0, 1).per_member();
    schema.real("optim.step_epochs", 10, "step: epochs between two reductions").above(0).per_member();
    schema.real("optim.step_gamma", 0.1, "step: factor of each reduction").above(0).per_member();
}

void add_telemetry_keys(base::Schema& schema) {
    schema.duration("telemetry.interval", "500ms", "time between two looks at the machine, at least 1ms; 0s: never")
        .between(0, 3600);
    schema.boolean("telemetry.csv", false, "write samples.csv beside samples.jsonl");
    schema.boolean("telemetry.monitor_csv", false, "write gpu_stats.csv, the eleven columns of nvidia-smi's usual script");
    schema.boolean("telemetry.tensorboard", false, "write tensorboard/ for TensorBoard");
    schema.text("telemetry.prometheus_file", "", "file for Prometheus' textfile collector, replaced every second; empty: none");
    schema.integer("telemetry.prometheus_port", 0, "port of http://127.0.0.1/metrics for Prometheus; 0: none").between(0, 65535);
    schema.choice("telemetry.components", "auto", {"auto", "on", "off"},
                  "time the parts of a step now and then; auto: with --log-level performance and beyond");
    schema.integer("telemetry.components_every", 1000, "steps between two such measurements").between(1, 1000000000);
}

void add_run_keys(base::Schema& schema, const std::vector<std::string>& measures) {
    schema.integer("seed", 42, "key of all random numbers; member k of several takes seed + k unless a list is given")
        .at_least(0)
        .per_member();
    schema.integer("members", 1, "models trained side by side in one program").between(1, 1024);
    schema.boolean("deterministic", false, "pin kernels so that members equal separate runs to the bit");
    schema.choice("precision", "auto", {"auto", "f32", "bf16", "f16"},
                  "operands of products; auto: bf16 on cuda, f16 where the GPU has no bf16, f32 on cpu; f16 scales the loss");
    schema.choice("device", "auto", {"auto", "cpu", "cuda"}, "where to train; auto: cuda when there is one");
    schema.integer("threads", 0, "CPU threads; 0: one per core").between(0, 1024);
    schema.text(
        "parallel.members", "auto",
        "of mpirun: groups of ranks that share out the members, the ranks of a group share the rows of a step; auto: as many "
        "as divide members and ranks");
    schema.choice("parallel.order", "rank", {"rank", "fast"},
                  "gradients are added in the order of ranks, the same bits every time; fast: by the library's all-reduce");
    schema.duration("parallel.timeout", "30s", "a step that waits longer for another rank ends the run with status 75; 0s: never")
        .between(0, 86400);
    schema
        .integer("checkpoint.every_epochs", 1, "epochs between two checkpoints; the best and the final one are saved in any case")
        .between(1, 1000000);
    schema
        .duration(
            "checkpoint.every_time", "5m",
            "longest time between two checkpoints, in the middle of an epoch, too; one by time stays until the next and counts "
            "towards no limit; 0s: none")
        .between(0, 86400);
    schema.integer("checkpoint.keep", 3, "newest checkpoints kept, those by time not counted; last and best stay in any case")
        .between(1, 1000000);
    schema.bytes("checkpoint.keep_bytes", "0B", "bytes that all checkpoints may take, oldest go first; 0B: no limit");
    schema.boolean("checkpoint.compress", false, "compress the optimizer's state with zstd");
    schema.choice("checkpoint.best_metric", measures.front(), measures,
                  "what the best weights are best at; equal ones are told apart by the validation loss");
}

void add_structure_keys(base::Schema& schema, const models::Structure& structure) {
    schema.text("structure.operations", "",
                fmt::format("changes of the structure to try in turn, with commas: {}; empty: none",
                            fmt::join(structure.operations, ", ")));
    schema.integer("structure.interval", 1000, "steps between two tries").between(1, 1000000000);
    schema.integer("structure.tries", 100, "at most so many in a run").between(1, 1000000000);
    schema.integer("structure.trial_steps", 0, "steps that both structures train further before they are compared")
        .between(0, 1000000000);
    schema.real("structure.tolerance", 0.01,
                "a change is kept when the validation loss grows by no more; below 0: when it falls by that");
    structure.add_keys(schema);
}

void add_domain_keys(base::Schema& schema) {
    schema.text("eval.compare", "",
                "data.domains: the key whose values, one for each member, are compared, such as optim.lr; empty: none");
    schema.text("eval.controls", "", "values of that key that the others are compared with, with commas");
}

constexpr std::array<std::string_view, 22> kFreeKeys{"train.epochs",          "train.memory",     "train.steps",
                                                     "train.patience",        "train.capture",    "train.log_interval",
                                                     "train.debug_nonfinite", "eval.batch",       "eval.compare",
                                                     "eval.controls",         "device",           "threads",
                                                     "parallel.members",      "parallel.timeout", "checkpoint.every_epochs",
                                                     "checkpoint.every_time", "checkpoint.keep",  "checkpoint.keep_bytes",
                                                     "checkpoint.compress",   "data.path",        "data.mode",
                                                     "data.threads"};

}  // namespace

base::Schema general_schema(const models::Family& family) {
    base::Schema schema;
    data::add_data_keys(schema, family.data);
    if (family.data == data::DataKind::text) add_domain_keys(schema);
    add_train_keys(schema);
    if (family.weighs_classes)
        schema.choice("train.class_weights", "none", {"none", "balanced"},
                      "balanced: in the training loss a class of n rows counts N / (classes n), as much as any other");
    add_optim_keys(schema);
    add_telemetry_keys(schema);
    add_run_keys(schema, family.measures);
    if (!family.structure.operations.empty()) add_structure_keys(schema, family.structure);
    return schema;
}

base::Result<base::Schema> schema_for(std::string_view model, std::string_view preset) {
    MILLRACE_LET(keys, models::schema(std::string(model), std::string(preset)));
    MILLRACE_LET(family, models::find_family(std::string(model)));
    base::Schema schema = general_schema(*family);
    if (family->set_general_defaults != nullptr) family->set_general_defaults(std::string(preset), schema);
    schema.add("model", keys);
    return schema;
}

namespace {

base::Result<base::Schema> schema_of_text(std::string_view text, const std::string& place,
                                          const base::RecipeOverrides& overrides) {
    MILLRACE_LET(name, base::peek_recipe_text(text, place, "model.name", overrides));
    MILLRACE_LET(preset, base::peek_recipe_text(text, place, "model.preset", overrides));
    const models::Family& usual = models::families().front();
    auto schema = schema_for(name.value_or(usual.name), preset.value_or(usual.presets.front()));
    if (!schema.ok())
        return base::Error{"cannot tell which model to train", place, schema.error().exit_status}.because(schema.error());
    return schema;
}

}  // namespace

base::Result<base::Schema> schema_of_recipe(const std::string& path, const base::RecipeOverrides& overrides) {
    if (path.empty()) return schema_of_text("", "", overrides);
    MILLRACE_LET(text, io::read_recipe_file(path));
    return schema_of_text(text, path, overrides);
}

base::Result<base::Recipe> parse_recipe(std::string_view text, const std::string& place, const base::RecipeOverrides& overrides) {
    MILLRACE_LET(schema, schema_of_text(text, place, overrides));
    return base::Recipe::parse(text, place, schema, overrides);
}

base::Result<base::Recipe> load_recipe(const std::string& path, const base::RecipeOverrides& overrides) {
    MILLRACE_LET(text, io::read_recipe_file(path));
    MILLRACE_LET(is_empty, base::is_empty_recipe(text, path));
    if (is_empty)
        return base::Error{
            "the recipe is empty: it must at least say which model to train (model.name and model.preset, which "
            "millrace models lists), as those in recipes/ do",
            path};
    MILLRACE_LET(recipe, base::peek_recipe_text(text, path, "recipe"));
    if (recipe)
        return base::Error{
            fmt::format("is a study, which names the recipe {}; millrace sweep {} searches it, millrace train takes a recipe",
                        *recipe, path),
            path};
    return parse_recipe(text, path, overrides);
}

bool may_change_on_resume(std::string_view key) {
    return key.starts_with("telemetry.") || std::find(kFreeKeys.begin(), kFreeKeys.end(), key) != kFreeKeys.end();
}

base::Status check_resumable(const base::Recipe& before, const base::Recipe& now) {
    for (const base::RecipeDifference& difference : before.differences(now))
        if (!may_change_on_resume(difference.name))
            return base::Error{
                fmt::format("the run was started with {} = {}, not {}; resume with the same value or start a new run with --out",
                            difference.name, difference.left, difference.right),
                difference.right == "absent" ? std::string{} : now.place(difference.name)};
    if (now.integer("train.epochs") < before.integer("train.epochs"))
        return now.bad("train.epochs", fmt::format("the run was started for {} epochs; a resumed run may have more, not fewer",
                                                   before.integer("train.epochs")));
    return base::ok();
}

namespace {

/// `key` is read where `other` has one of `values`, with spaces between them, alone.
struct Condition {
    const char *key, *other, *values;
};
constexpr Condition kConditions[] = {
    {"data.rotate", "data.augment", "true"},        {"data.shift", "data.augment", "true"},
    {"data.scale", "data.augment", "true"},         {"data.flip", "data.augment", "true"},
    {"optim.beta1", "optim.name", "adam adamw"},    {"optim.beta2", "optim.name", "adam adamw"},
    {"optim.eps", "optim.name", "adam adamw"},      {"optim.momentum", "optim.name", "sgd"},
    {"optim.floor", "optim.schedule", "cosine"},    {"optim.step_epochs", "optim.schedule", "step"},
    {"optim.step_gamma", "optim.schedule", "step"},
};

}  // namespace

std::vector<std::string> idle_keys(const base::Recipe& recipe) {
    const auto schema = schema_for(recipe.text("model.name"), recipe.text("model.preset"));
    if (!schema.ok()) return {};
    const auto usual = base::Recipe::parse("", "", *schema);
    if (!usual.ok()) return {};
    const std::vector<base::RecipeDifference> changed = usual->differences(recipe);
    std::vector<std::string> out;
    for (const auto& [key, other, values] : kConditions) {
        const auto found = std::ranges::find(changed, key, &base::RecipeDifference::name);
        if (found == changed.end()) continue;
        const base::RecipeKey& of = *schema->find(other);
        const std::string now = of.kind == base::KeyKind::boolean ? fmt::format("{}", recipe.boolean(other)) : recipe.text(other);
        const std::vector<std::string> wanted = base::split(values, ' ');
        if (std::ranges::find(wanted, now) != wanted.end()) continue;
        out.push_back(fmt::format("{} = {} changes nothing: it is read where {} is {}, not {}", key, found->right, other,
                                  fmt::join(wanted, " or "), now));
    }
    return out;
}

}  // namespace millrace::train
