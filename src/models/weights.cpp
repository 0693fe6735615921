#include "models/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>

#include "models/backend_options.h"

namespace millrace::models {
namespace {

using tape::Parameter;
using tape::ParameterId;
using Arena = tape::Store::Arena;

constexpr std::string_view kRunningMean = "running_mean";

/// Replaces `now` in a name by what earlier versions wrote there; nothing where it does not occur.
std::string former(const std::string& name, std::string_view now, std::string_view before, bool leading) {
    const std::size_t at = name.find(now);
    if (at == std::string::npos || (leading && at != 0)) return {};
    return std::string(name).replace(at, now.size(), before);
}

std::vector<std::int64_t> shape_of(const Parameter& p) {
    if (p.vector) return {p.cols};
    if (p.axes.empty()) return {p.rows, p.cols};
    std::vector<std::int64_t> shape{p.rows};
    shape.insert(shape.end(), p.axes.begin(), p.axes.end());
    return shape;
}

/// "layer.norm.running_mean" is "layer.norm.num_batches_tracked"; empty for any other name.
std::string batches_name(const std::string& name) {
    if (!name.ends_with(kRunningMean)) return {};
    return name.substr(0, name.size() - kRunningMean.size()) + "num_batches_tracked";
}

/// The optimizer's tensors of a parameter: where they live and what PyTorch calls them.
struct Moment {
    Arena arena;
    tensor::BufferId buffer;
    const char* suffix;
};
std::vector<Moment> moments_of(const tape::Store& store) {
    const tensor::View first = store.first_moment(), second = store.second_moment();
    if (second.present())
        return {{Arena::first_moment, first.buffer, ".exp_avg"}, {Arena::second_moment, second.buffer, ".exp_avg_sq"}};
    if (first.present()) return {{Arena::first_moment, first.buffer, ".momentum_buffer"}};
    return {};
}

/// A window of each arena: reading tensor by tensor would wait for the device as often as there are tensors.
class ArenaWindows {
public:
    explicit ArenaWindows(tape::Store& store) : store_(store) {}

    /// Elements [begin, begin + count) of an arena, as floats.
    base::Status pour(tensor::BufferId arena, std::int64_t begin, std::int64_t count, io::ByteSink& sink) {
        Window& window = windows_[arena];
        while (count > 0) {
            if (begin < window.begin || begin >= window.end()) MILLRACE_TRY(move(window, arena, begin));
            const std::int64_t piece = std::min(count, window.end() - begin);
            const auto values =
                std::span(window.values).subspan(static_cast<std::size_t>(begin - window.begin), static_cast<std::size_t>(piece));
            MILLRACE_TRY(sink.write(std::as_bytes(values)));
            begin += piece;
            count -= piece;
        }
        return base::ok();
    }

private:
    struct Window {
        std::int64_t begin = 0;
        std::vector<float> values;
        [[nodiscard]] std::int64_t end() const { return begin + static_cast<std::int64_t>(values.size()); }
    };

    base::Status move(Window& window, tensor::BufferId arena, std::int64_t begin) {
        constexpr auto kMost = static_cast<std::int64_t>(kWindowBytes / sizeof(float));
        const tape::Buffer& buffer = store_.buffers()[static_cast<std::size_t>(arena)];
        tensor::View view;
        view.buffer = arena;
        view.dtype = buffer.dtype;
        view.offset = window.begin = begin;
        window.values.resize(static_cast<std::size_t>(std::min(kMost, buffer.elements - begin)));
        store_.read_stat(view, window.values);
        return store_.backend().check();  // a device that failed leaves zeros, which must not be saved
    }

    tape::Store& store_;
    std::map<tensor::BufferId, Window> windows_;
};

template <class Visit>
void for_each_tensor(const tape::Store& store, const Visit& visit) {
    for (std::size_t id = 0; id < store.parameters().size(); ++id) {
        const Parameter& p = store.parameters()[id];
        for (int matrix = 0; matrix < p.matrices; ++matrix)
            visit(p, static_cast<ParameterId>(id), matrix, p.names[static_cast<std::size_t>(matrix)]);
    }
}

/// A tensor that a file must have, or may have where it is `optional`; without a shape, its shape is its own.
struct Wanted {
    std::optional<std::vector<std::int64_t>> shape = {};
    bool optional = false;
};
using Tensors = std::map<std::string, Wanted>;

/// "missing out.bias, out.weight and 3 more"; nothing when the list is empty.
void add_list(std::vector<std::string>& to, const char* what, const std::vector<std::string>& names) {
    constexpr std::size_t kMost = 4;
    if (names.empty()) return;
    const auto first = names.begin(), end = first + static_cast<std::ptrdiff_t>(std::min(kMost, names.size()));
    std::string text = fmt::format("{} {}", what, fmt::join(first, end, ", "));
    if (names.size() > kMost) text += fmt::format(" and {} more", names.size() - kMost);
    to.push_back(std::move(text));
}

/// Additional tensors are refused, too: a larger model's file would otherwise load into a smaller one.
base::Status check_tensors(const io::SafetensorsFile& file, const Tensors& wanted) {
    std::vector<std::string> missing, additional, other, lists;
    std::set<std::string_view> taken;
    for (const auto& [name, one] : wanted) {
        const auto& shape = one.shape;
        const io::TensorView* tensor = find_tensor(file, name);
        if (tensor != nullptr) taken.insert(tensor->name);
        if (tensor == nullptr && !one.optional) missing.push_back(name);
        if (tensor != nullptr && shape && tensor->shape != *shape)
            other.push_back(fmt::format("{} ([{}], not [{}])", name, fmt::join(tensor->shape, ", "), fmt::join(*shape, ", ")));
    }
    for (const io::TensorView& tensor : file.tensors())
        if (!taken.contains(tensor.name)) additional.push_back(tensor.name);
    add_list(lists, "missing", missing);
    add_list(lists, "additional", additional);
    add_list(lists, "of another shape", other);
    if (lists.empty()) return base::ok();
    return base::Error{fmt::format("the tensors are not those of this model: {}", fmt::join(lists, "; ")), file.place()};
}

base::Status load_tensor(tape::Store& store, const io::SafetensorsFile& file, const std::string& name, const Parameter& p,
                         ParameterId id, int matrix, int member, Arena arena) {
    const io::TensorView* tensor = find_tensor(file, name);
    const std::size_t all = static_cast<std::size_t>(p.rows) * static_cast<std::size_t>(p.cols);
    std::vector<float> values(std::min(all, kWindowBytes / sizeof(float)));
    for (std::size_t first = 0; first < all; first += values.size()) {
        values.resize(std::min(values.size(), all - first));
        MILLRACE_TRY(file.copy_floats(tensor != nullptr ? tensor->name : name, shape_of(p), values, first));
        store.write_parameter(id, matrix, member, values, arena, static_cast<std::int64_t>(first));
    }
    return base::ok();
}

base::Status check_attachment(const io::SafetensorsFile& file, const Attachment& attachment) {
    const io::TensorView* tensor = file.find(attachment.name);
    if (tensor == nullptr && attachment.name == kPreparation) return base::ok();
    std::string bytes;
    if (tensor != nullptr) MILLRACE_SET(bytes, read_text(file, *tensor));
    if (tensor == nullptr || tensor->type != io::ElementType::kU8 || bytes != attachment.bytes)
        return base::Error{fmt::format("tensor {} is {}; the file is of another model", attachment.name,
                                       tensor == nullptr ? "missing" : "another"),
                           file.place()};
    return base::ok();
}

/// `settings`: fixed parameters that say what the recipe said are loaded too.
base::Status load_member(tape::Store& store, const io::LoadedMember& loaded, int member, bool with_optimizer, bool settings,
                         const std::vector<Attachment>& attachments) {
    Tensors model, optimizer;
    for (const Attachment& attachment : attachments)
        model[attachment.name] = {{{static_cast<std::int64_t>(attachment.bytes.size())}}, attachment.name == kPreparation};
    model.try_emplace(kPreparation, Wanted{std::nullopt, true});  // a program that reads no data set takes the weights, too
    const std::vector<Moment> moments = with_optimizer ? moments_of(store) : std::vector<Moment>{};
    if (!moments.empty() && !loaded.optimizer)
        return base::Error{"the checkpoint has no optimizer state, so training cannot go on from it", loaded.model.place()};
    const auto is_setting = [&](const Parameter& p) {
        return store.groups()[static_cast<std::size_t>(p.group_ids.front())].name == tape::kSettings;
    };
    for_each_tensor(store, [&](const Parameter& p, ParameterId, int, const std::string& name) {
        model[name] = {settings || !is_setting(p) ? std::optional(shape_of(p)) : std::nullopt, is_setting(p)};
        if (const std::string batches = batches_name(name); p.fixed && !batches.empty()) model[batches] = {std::nullopt, true};
        if (p.fixed) return;
        for (const Moment& moment : moments) optimizer[name + moment.suffix] = {shape_of(p)};
    });
    MILLRACE_TRY(check_tensors(loaded.model, model));
    if (!moments.empty()) MILLRACE_TRY(check_tensors(*loaded.optimizer, optimizer));
    for (const Attachment& attachment : attachments) MILLRACE_TRY(check_attachment(loaded.model, attachment));
    base::Status status = base::ok();
    for_each_tensor(store, [&](const Parameter& p, ParameterId id, int matrix, const std::string& name) {
        const bool taken = !is_setting(p) || (settings && find_tensor(loaded.model, name) != nullptr);
        if (status.ok() && taken) status = load_tensor(store, loaded.model, name, p, id, matrix, member, Arena::value);
        if (p.fixed) return;
        for (const Moment& moment : moments)
            if (status.ok())
                status = load_tensor(store, *loaded.optimizer, name + moment.suffix, p, id, matrix, member, moment.arena);
    });
    return status;
}

}  // namespace

base::Result<std::string> read_text(const io::SafetensorsFile& file, const io::TensorView& tensor) {
    MILLRACE_LET(bytes, file.read(tensor));
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

const io::TensorView* find_tensor(const io::SafetensorsFile& file, const std::string& name) {
    if (const io::TensorView* tensor = file.find(name)) return tensor;
    for (const std::string& earlier : {former(name, ".position.", ".places.", false), former(name, "layers.", "nodes.", true)})
        if (const io::TensorView* tensor = earlier.empty() ? nullptr : file.find(earlier)) return tensor;
    return nullptr;
}

base::Result<std::int32_t> stored_rows(const io::SafetensorsFile& file, const std::string& name, std::int32_t beside) {
    constexpr std::int64_t kMostRows = 1 << 20;
    const io::TensorView* tensor = find_tensor(file, name);
    if (tensor == nullptr || tensor->shape.size() != 2 || tensor->shape[0] <= beside || tensor->shape[0] > kMostRows)
        return base::Error{fmt::format("tensor {} is missing or of another shape; the file is of another model", name),
                           file.place()};
    return static_cast<std::int32_t>(tensor->shape[0]) - beside;
}

std::vector<io::MemberTensors> stored_tensors(tape::Store& store, std::int64_t batches,
                                              const std::vector<Attachment>& attachments) {
    const std::vector<Moment> moments = moments_of(store);
    const auto windows = std::make_shared<ArenaWindows>(store);
    std::vector<io::MemberTensors> members;
    for (int member = 0; member < store.members(); ++member) {
        io::MemberTensors& tensors = members.emplace_back();
        for_each_tensor(store, [&](const Parameter& p, ParameterId id, int matrix, const std::string& name) {
            const tensor::View view = store.parameter(id);
            const std::int64_t begin = view.offset + matrix * view.stride_g + member * view.stride_k;
            const std::int64_t count = std::int64_t{p.rows} * p.cols;
            const auto add = [&](std::vector<io::TensorView>& to, std::string called, tensor::BufferId arena) {
                to.push_back({std::move(called), io::ElementType::kF32, shape_of(p), nullptr,
                              static_cast<std::size_t>(count) * sizeof(float),
                              [=](io::ByteSink& sink) { return windows->pour(arena, begin, count, sink); }});
            };
            add(tensors.model, name, view.buffer);
            if (const std::string counter = batches_name(name); p.fixed && !counter.empty())
                tensors.model.push_back({counter, io::ElementType::kI64, {}, nullptr, sizeof batches, [=](io::ByteSink& sink) {
                                             return sink.write(std::as_bytes(std::span(&batches, 1)));
                                         }});
            if (p.fixed) return;
            for (const Moment& moment : moments) add(tensors.optimizer, name + moment.suffix, moment.buffer);
        });
        for (const Attachment& attachment : attachments)
            tensors.model.push_back({attachment.name,
                                     io::ElementType::kU8,
                                     {static_cast<std::int64_t>(attachment.bytes.size())},
                                     reinterpret_cast<const std::byte*>(attachment.bytes.data()),
                                     attachment.bytes.size()});
    }
    return members;
}

base::Status load_weights(tape::Store& store, const io::LoadedCheckpoint& checkpoint, bool with_optimizer,
                          const std::vector<Attachment>& attachments) {
    if (static_cast<int>(checkpoint.members.size()) != store.members())
        return base::Error{
            fmt::format("the checkpoint holds {} members, the recipe has {}", checkpoint.members.size(), store.members()),
            checkpoint.folder};
    for (int member = 0; member < store.members(); ++member)
        MILLRACE_TRY(
            load_member(store, checkpoint.members[static_cast<std::size_t>(member)], member, with_optimizer, true, attachments));
    store.refresh_copies();
    return base::ok();
}

void write_fixed(tape::Store& store, const std::string& name, int member, double value) {
    const std::vector<tape::Parameter>& all = store.parameters();
    const auto found = std::ranges::find_if(all, [&](const tape::Parameter& p) { return p.fixed && p.names.front() == name; });
    MILLRACE_ASSERT(found != all.end(), "no fixed parameter " + name);
    store.write_parameter(static_cast<tape::ParameterId>(found - all.begin()), 0, member,
                          std::vector<float>(static_cast<std::size_t>(found->count()), static_cast<float>(value)));
}

base::Status load_initial(tape::Store& store, const io::LoadedCheckpoint& checkpoint,
                          const std::vector<Attachment>& attachments) {
    const std::size_t given = checkpoint.members.size();
    if (given != 1 && given != static_cast<std::size_t>(store.members()))
        return base::Error{
            fmt::format("holds the weights of {} members and the recipe has {}; as many, or the weights of one, would "
                        "be right",
                        given, store.members()),
            checkpoint.folder};
    for (int member = 0; member < store.members(); ++member)
        MILLRACE_TRY(load_member(store, checkpoint.members[given == 1 ? 0 : static_cast<std::size_t>(member)], member, false,
                                 false, attachments));
    store.refresh_copies();
    return base::ok();
}

base::Result<std::unique_ptr<TrainedModel>> TrainedModel::create(const CheckpointRequest& request, std::unique_ptr<Model> model,
                                                                 const std::string& program,
                                                                 const std::function<base::Status(tape::Store&)>& declare,
                                                                 const std::function<void(tape::Builder&)>& build) {
    auto made = std::make_unique<TrainedModel>();
    made->model_ = std::move(model);
    MILLRACE_SET(made->backend_,
                 ops::make_backend(request.device, backend_options(request.recipe, request.device, request.precision)));
    const std::size_t members = request.checkpoint.members.size();
    tape::StoreOptions options{static_cast<int>(members), request.precision};
    options.ring_capacity = 1;
    options.first_moment = options.second_moment = false;
    made->store_ = std::make_unique<tape::Store>(*made->backend_, options);
    tape::Store& store = *made->store_;
    MILLRACE_TRY(made->model_->declare(store));
    MILLRACE_TRY(declare(store));
    MILLRACE_TRY(store.allocate());
    store.initialize(std::vector<std::uint64_t>(members, 1));
    MILLRACE_TRY(load_weights(store, request.checkpoint, false, made->model_->attachments()));
    tape::Builder builder(store, {.training = false});
    build(builder);
    made->arena_ = std::make_unique<tape::Arena>(*made->backend_);
    made->program_ = std::make_unique<tape::Program>(program, store, std::move(builder), *made->arena_);
    MILLRACE_TRY(made->arena_->allocate());
    MILLRACE_TRY(made->program_->prepare());
    return made;
}

std::string TrainedModel::device() const {
    return fmt::format("{}: {}", ops::name_of(backend_->kind()), backend_->description());
}

}  // namespace millrace::models
