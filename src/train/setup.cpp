#include "train/setup.h"

#include <fmt/format.h>

#include <thread>

#include "base/log.h"
#include "base/units.h"
#include "data/load.h"
#include "models/backend_options.h"
#include "models/registry.h"
#include "train/memory_plan.h"

namespace millrace::train {
namespace {

/// Whether a run keeps its data in device memory or streams it: data.mode.
struct Loading {
    bool stream = false;
    bool streamable = false;  ///< resident by choice: where the plan has no room for it, streaming would do
    std::string reason;       ///< for people; empty where sets of this kind are always resident
};

/// auto: as the run that goes on has it; else resident when the set fits into what device and machine have room for. Refuses
/// "stream" for a kind of data that cannot be streamed, and another way than that of the run that goes on.
base::Result<Loading> choose_loading(const base::Recipe& recipe, data::DataKind kind, bool training,
                                     const data::StoredData& stored, const ops::Backend& backend) {
    const std::string& mode = recipe.text("data.mode");
    MILLRACE_LET(needed, data::streamable_bytes(recipe, kind, training));
    if (!needed) {
        if (mode != "stream") return Loading{};
        return recipe.bad("data.mode",
                          fmt::format("data.mode = \"stream\": {} are always resident; sets of recordings can be streamed",
                                      data::unit_of(kind)));
    }
    if (stored.streamed && mode != "auto" && *stored.streamed != (mode == "stream"))
        return recipe.bad("data.mode",
                          fmt::format("data.mode = \"{}\": the run was started with {} data, whose order is another; "
                                      "resume with the same or start a new run with --out",
                                      mode, *stored.streamed ? "streamed" : "resident"));
    if (mode != "auto") return Loading{mode == "stream", false, fmt::format("data.mode = \"{}\"", mode)};
    if (stored.streamed) return Loading{*stored.streamed, false, "as the run was started"};
    const std::string size = base::print_bytes(*needed);
    for (const auto& limit :
         {memory_limit(static_cast<std::int64_t>(recipe.bytes("train.memory")), backend), host_memory_limit()})
        if (limit && static_cast<std::int64_t>(*needed) > limit->bytes)
            return Loading{
                true, false,
                fmt::format("{}, and {} {}", size, limit->owner, base::print_bytes(static_cast<std::uint64_t>(limit->bytes)))};
    return Loading{false, true, fmt::format("{}, which fit", size)};
}

/// What set_up() was asked for.
struct Request {
    const base::Recipe& recipe;
    bool training;
    const SourceAdapter& adapt;
    std::int32_t micro_batch;
    const data::StoredData& stored;
    bool class_reports;
    tape::Precision precision;
    ops::BackendOptions options;
};

/// `no_room` becomes true when everything was right but the memory.
base::Result<Setup> set_up_as(const Request& request, const Loading& loading, ops::DeviceKind device,
                              std::unique_ptr<ops::Backend> backend, bool& no_room) {
    const auto& [recipe, training, adapt, micro_batch, stored, class_reports, precision, options] = request;
    Setup setup;
    MILLRACE_LET(family, models::find_family(recipe.text("model.name")));
    const base::Rank rank;  // training on several machines begins here
    MILLRACE_LET(data, data::load_data(recipe, family->data, family->token_keys, training, stored, rank, loading.stream));
    if (!loading.reason.empty()) {
        const std::string more = data.source->loading();
        setup.loading =
            fmt::format("{} ({}){}{}", loading.stream ? "streamed" : "resident", loading.reason, more.empty() ? "" : ": ", more);
    }
    setup.data = data.identity;
    setup.unit = data::unit_of(family->data);
    setup.notes = data.source->notes();
    MILLRACE_SET(setup.settings, read_settings(recipe, rank.share(static_cast<std::int32_t>(setup.data.train))));
    setup.settings.rank = rank;
    setup.settings.domains = std::move(data.domains);
    if (setup.settings.micro_batch == 0 && micro_batch > 0 && setup.settings.batch % micro_batch == 0)
        setup.settings.micro_batch = micro_batch;
    MILLRACE_LET(model, models::make(recipe, data.source->fields()));

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
        MILLRACE_TRY(check_batch_rows(recipe, static_cast<std::int32_t>(setup.data.train), model->minimum_rows()));
        if (const base::Status fits = model->check_rows(setup.settings.batch); !fits.ok())
            return recipe.bad("train.batch", fits.error().message);
    }
    if (const base::Status fits = model->check_rows(setup.settings.eval_batch); !fits.ok())
        return recipe.bad("eval.batch", fits.error().message);

    const auto threads = static_cast<int>(recipe.integer("threads"));
    setup.threads = threads > 0 ? threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    setup.device = fmt::format("{}: {}", ops::name_of(device), backend->description());
    setup.precision = models::products_in(options, precision);
    std::unique_ptr<data::BatchSource> source = std::move(data.source);
    if (adapt) source = adapt(std::move(source));
    EngineOptions engine_options;
    engine_options.precision = precision;
    engine_options.training = training;
    engine_options.class_reports = class_reports;
    engine_options.no_room = &no_room;
    MILLRACE_SET(setup.engine,
                 Engine::create(std::move(backend), std::move(model), std::move(source), setup.settings, engine_options));
    return setup;
}

}  // namespace

base::Result<Setup> set_up(const base::Recipe& recipe, bool training, const SourceAdapter& adapt, std::int32_t micro_batch,
                           const data::StoredData& stored, bool class_reports, const std::vector<std::string>& forms) {
    MILLRACE_LET(device, choose_device(recipe.text("device")));
    MILLRACE_LET(family, models::find_family(recipe.text("model.name")));
    MILLRACE_LET(precision, choose_precision(recipe.text("precision"), device));
    ops::BackendOptions options = models::backend_options(recipe, device, precision);
    options.forms.insert(options.forms.end(), forms.begin(), forms.end());
    MILLRACE_LET(backend, ops::make_backend(device, options));
    MILLRACE_LET(loading, choose_loading(recipe, family->data, training, stored, *backend));
    const Request request{recipe, training, adapt, micro_batch, stored, class_reports, precision, options};
    bool no_room = false;
    auto setup = set_up_as(request, loading, device, std::move(backend), no_room);
    if (setup.ok() || !no_room || !loading.streamable) return setup;
    loading = {true, false, "the set and the model do not fit into the memory together"};
    MILLRACE_LET(another, ops::make_backend(device, options));
    return set_up_as(request, loading, device, std::move(another), no_room);
}

std::string data_text(const data::DataIdentity& data, const std::string& unit) {
    const auto count = [](std::int64_t number) { return base::print_count(static_cast<std::uint64_t>(number)); };
    return fmt::format("{}: {} {} to train on, {} to select by{}", data.name, count(data.train), unit, count(data.validation),
                       data.test > 0 ? fmt::format(", {} to test", count(data.test)) : "");
}

}  // namespace millrace::train
