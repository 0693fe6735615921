#include "train/setup.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "base/log.h"
#include "base/processors.h"
#include "base/split.h"
#include "base/units.h"
#include "data/forms.h"
#include "data/load.h"
#include "models/backend_options.h"
#include "models/registry.h"
#include "train/memory_plan.h"
#include "train/ranks.h"

namespace millrace::train {
namespace {

/// Whether a run keeps its data in device memory or streams it: data.mode.
struct Loading {
    bool stream = false;
    bool streamable = false;  ///< resident by choice: where the plan has no room for it, streaming would do
    std::string reason;       ///< for people; empty where sets of this kind are always resident
};

/// auto: as the run that goes on has it; else resident when the set of so many bytes fits into what device and machine have room
/// for. Refuses another way than that of the run that goes on.
base::Result<Loading> choose_loading(const base::Recipe& recipe, std::uint64_t needed, const data::StoredData& stored,
                                     const ops::Backend& backend) {
    const std::string& mode = recipe.text("data.mode");
    if (stored.streamed && mode != "auto" && *stored.streamed != (mode == "stream"))
        return recipe.bad("data.mode",
                          fmt::format("data.mode = \"{}\": the run was started with {} data, whose order is another; "
                                      "resume with the same or start a new run with --out",
                                      mode, *stored.streamed ? "streamed" : "resident"));
    if (mode != "auto") return Loading{mode == "stream", false, fmt::format("data.mode = \"{}\"", mode)};
    if (stored.streamed) return Loading{*stored.streamed, false, "as the run was started"};
    const std::string size = base::print_bytes(needed);
    for (const auto& limit :
         {memory_limit(static_cast<std::int64_t>(recipe.bytes("train.memory")), backend), host_memory_limit()})
        if (limit && static_cast<std::int64_t>(needed) > limit->bytes)
            return Loading{
                true, false,
                fmt::format("{}, and {} {}", size, limit->owner, base::print_bytes(static_cast<std::uint64_t>(limit->bytes)))};
    // Windows take half as much again as data.window: of a smaller set they save nothing.
    return Loading{false, 2 * needed > 3 * recipe.bytes("data.window"), fmt::format("{}, which fit", size)};
}

/// Refuses a resident set whose files have no room in the machine's memory, before they are read: once as they are, once more
/// where the device's memory is the machine's.
base::Status check_room(const base::Recipe& recipe, bool on_host) {
    const std::optional<MemoryLimit> limit = host_memory_limit();
    std::error_code failed;
    std::int64_t bytes = 0;
    for (std::filesystem::directory_iterator at(recipe.text("data.path"), failed), end; !failed && at != end;
         at.increment(failed)) {
        std::error_code unknown;
        if (at->is_regular_file(unknown)) bytes += static_cast<std::int64_t>(at->file_size(unknown));
    }
    const std::int64_t needed = on_host ? 2 * bytes : bytes;
    if (!limit || needed <= limit->bytes) return base::ok();
    const auto text = [](std::int64_t count) { return base::print_bytes(static_cast<std::uint64_t>(count)); };
    return recipe.bad(
        "data.path", fmt::format("data.path = \"{}\" holds {} of files, which need {} of memory; {} {}", recipe.text("data.path"),
                                 text(bytes), text(needed), limit->owner, text(limit->bytes)));
}

/// What set_up() was asked for.
struct Request {
    const base::Recipe& recipe;
    bool training;
    const SetUpOptions& given;
    tape::Precision precision;
    ops::BackendOptions options;
};

/// The rows of a step are those of all ranks.
base::Status share_rows(const base::Recipe& recipe, Ranks& ranks, RunSettings& settings, std::int32_t micro_batch) {
    const std::int32_t world = ranks.data().size();
    settings.ranks = {static_cast<std::uint32_t>(ranks.data().rank()), static_cast<std::uint32_t>(world),
                      recipe.text("parallel.order") == "fast"};
    if (settings.batch % world != 0)
        return recipe.bad("train.batch", fmt::format("train.batch = {} is that of all ranks, and {} share it; {} would be right",
                                                     settings.batch, world, (settings.batch + world - 1) / world * world));
    const std::int32_t own = settings.batch / world;
    if (settings.micro_batch > 0 && own % settings.micro_batch != 0)
        return recipe.bad("train.micro_batch",
                          fmt::format("train.micro_batch = {} does not divide the {} rows that each of {} ranks "
                                      "has of a batch; 0 chooses one that does",
                                      settings.micro_batch, own, world));
    if (micro_batch > 0 && own % micro_batch != 0 && ranks.leads())
        MILLRACE_LOG(warn, "micro-batches of {} rows do not fit {} ranks: bits differ from here on", micro_batch, world);
    return base::ok();
}

/// `loading` is chosen where it has no reason yet; `no_room` becomes true when everything was right but the memory.
base::Result<Setup> set_up_as(const Request& request, Loading& loading, ops::DeviceKind device,
                              std::unique_ptr<ops::Backend> backend, bool& no_room) {
    const auto& [recipe, training, given, precision, options] = request;
    Setup setup;
    MILLRACE_LET(family, models::find_family(recipe.text("model.name")));
    const bool on_host = !backend->memory(), recordings = family->data == data::DataKind::recordings;
    const data::Form form = data::form_of(recipe.text("data.path"));
    // Pictures and arrays stay in files, and so may features of recordings; what else can be streamed is read once.
    if (!given.load && !recordings && form != data::Form::pictures && form != data::Form::arrays)
        MILLRACE_TRY(check_room(recipe, on_host && !data::can_stream(family->data)));
    const auto choose = [&](std::uint64_t bytes) -> base::Result<bool> {
        if (loading.reason.empty()) MILLRACE_SET(loading, choose_loading(recipe, bytes, given.stored, *backend));
        if (recordings && !loading.stream) MILLRACE_TRY(check_room(recipe, on_host));
        return loading.stream;
    };
    MILLRACE_LET(data, given.load ? given.load()
                                  : data::load_data(recipe, family->data, family->token_keys, training, given.stored, choose));
    if (!loading.reason.empty()) {
        const std::string more = data.source->loading();
        setup.loading =
            fmt::format("{} ({}){}{}", loading.stream ? "streamed" : "resident", loading.reason, more.empty() ? "" : ": ", more);
    }
    setup.data = data.identity;
    setup.unit = data.unit;
    setup.notes = data.source->notes();
    // What is not trained on may be less than a batch of training.
    const std::int64_t least = training ? 0 : recipe.integer("train.batch");
    MILLRACE_SET(setup.settings, read_settings(recipe, static_cast<std::int32_t>(std::max(setup.data.train, least))));
    setup.settings.domains = std::move(data.domains);
    if (given.ranks != nullptr) MILLRACE_TRY(share_rows(recipe, *given.ranks, setup.settings, given.micro_batch));
    if (setup.settings.micro_batch == 0 && given.micro_batch > 0 && setup.settings.rank_rows() % given.micro_batch == 0)
        setup.settings.micro_batch = given.micro_batch;
    MILLRACE_LET(model, models::make(recipe, data.source->fields()));
    std::string& best_metric = setup.settings.checkpoint.best_metric;
    if (!model->classifies() && setup.settings.checkpoint.by_macro_f1())
        return recipe.bad(
            "checkpoint.best_metric",
            "checkpoint.best_metric = \"macro_f1\", but the model predicts no classes; validation_loss would be right");
    if (!model->classifies() && best_metric == "validation_accuracy") best_metric = "validation_loss";

    if (training) {
        if (setup.settings.patience > 0 && setup.data.validation == 0)
            return recipe.bad("train.patience",
                              fmt::format("train.patience = {} needs {} set aside to judge by, and the run sets "
                                          "none aside; raise data.validation or leave train.patience out",
                                          setup.settings.patience, setup.unit));
        if (setup.settings.patience > 0 && !setup.settings.domains.empty())
            return recipe.bad("train.patience", fmt::format("train.patience = {}, but every one of data.domains has its epochs; "
                                                            "train.patience = 0 would be right",
                                                            setup.settings.patience));
        MILLRACE_TRY(
            check_batch_rows(recipe, setup.settings, static_cast<std::int32_t>(setup.data.train), model->minimum_rows()));
        if (const base::Status fits = model->check_rows(setup.settings.rank_rows()); !fits.ok())
            return recipe.bad("train.batch", fits.error().message);
    }
    if (const base::Status fits = model->check_rows(setup.settings.eval_batch); !fits.ok())
        return recipe.bad("eval.batch", fits.error().message);

    setup.threads = options.threads > 0 ? options.threads : base::usable_processors();
    setup.device = fmt::format("{}: {}", ops::name_of(device), backend->description());
    setup.precision = models::products_in(options, precision);
    std::unique_ptr<data::BatchSource> source = std::move(data.source);
    if (given.adapt) source = given.adapt(std::move(source));
    EngineOptions engine_options;
    engine_options.precision = precision;
    engine_options.training = training;
    engine_options.class_reports = given.class_reports;
    engine_options.group = options.group;
    engine_options.no_room = &no_room;
    MILLRACE_SET(setup.engine,
                 Engine::create(std::move(backend), std::move(model), std::move(source), setup.settings, engine_options));
    return setup;
}

}  // namespace

base::Result<Setup> set_up(const base::Recipe& recipe, bool training, const SetUpOptions& given) {
    MILLRACE_LET(device, choose_device(recipe.text("device")));
    MILLRACE_LET(family, models::find_family(recipe.text("model.name")));
    MILLRACE_LET(precision, choose_precision(recipe.text("precision"), device));
    ops::BackendOptions options = models::backend_options(recipe, device, precision);
    options.forms.insert(options.forms.end(), given.forms.begin(), given.forms.end());
    if (given.ranks != nullptr) {
        // Where a backend opens, ranks wait for each other.
        MILLRACE_TRY(given.ranks->world().agree(base::ok()));
        MILLRACE_TRY(given.ranks->all_equal(ops::name_of(device), "device"));
        if (given.ranks->shares_rows()) {
            options.group = &given.ranks->data();
            // On GPUs some forms are chosen by timing: rank 0 does so, by itself, and all take what it has.
            std::string forms;
            const auto rows = static_cast<std::int32_t>(recipe.integer("train.batch")) / options.group->size();
            if (given.ranks->leads() && device == ops::DeviceKind::cuda && given.forms.empty() && !options.deterministic)
                if (auto own = set_up(recipe, true, {.adapt = given.adapt, .micro_batch = rows, .stored = given.stored});
                    own.ok())
                    forms = fmt::format("{}", fmt::join(own->engine->backend().forms(), "\n"));
            MILLRACE_LET(texts, given.ranks->world().all_lists(forms));
            for (const std::string& form : base::split(texts.front(), '\n'))
                if (!form.empty()) options.forms.push_back(form);
        }
    }
    MILLRACE_LET(backend, ops::make_backend(device, options));
    if (recipe.text("data.mode") == "stream" && !data::can_stream(family->data))
        return recipe.bad("data.mode",
                          fmt::format("data.mode = \"stream\": {} are always resident; recordings and samples can be streamed",
                                      data::unit_of(family->data)));
    Loading loading;
    const Request request{recipe, training, given, precision, options};
    bool no_room = false;
    auto setup = set_up_as(request, loading, device, std::move(backend), no_room);
    bool streams = !setup.ok() && no_room && loading.streamable;
    if (options.group != nullptr) {
        MILLRACE_LET(all, options.group->all_of<char>(streams));
        streams = std::ranges::find(all, 1) != all.end();
    }
    if (!streams) return setup;
    setup = base::Error{};  // its backend goes before there is another
    loading = {true, false, "the set and the model do not fit into the memory together"};
    MILLRACE_LET(another, ops::make_backend(device, options));
    return set_up_as(request, loading, device, std::move(another), no_room);
}

std::string data_text(const data::DataIdentity& data, const std::string& unit) {
    const auto count = [](std::int64_t number) { return base::print_count(static_cast<std::uint64_t>(number)); };
    return fmt::format("{}: {} {} to train on, {} for validation{}", data.name, count(data.train), unit, count(data.validation),
                       data.test > 0 ? fmt::format(", {} to test", count(data.test)) : "");
}

}  // namespace millrace::train
