#include "diagnose/timeline/frames.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <string>
#include <unordered_set>
#include <utility>

#include "record/step_loops.h"

namespace millrace::diagnose {
namespace {

constexpr std::string_view kRuntimes =
    "libcuda libcudart libcublas libcudnn libnv libc.so libc- libtorch libc10 libstdc++ ld-linux libpthread libmillrace "
    "libpython";

template <class Fits>
bool any_word(std::string_view words, Fits fits) {
    while (!words.empty()) {
        const std::string_view word = words.substr(0, words.find(' '));
        words.remove_prefix(std::min(words.size(), word.size() + 1));
        if (fits(word)) return true;
    }
    return false;
}

/// PyTorch's profiler cuts off the folders that modules are looked for in: "threading.py", "numpy/_core/fromnumeric.py". What it
/// names so is the standard library's or an installed package's by its first part; no user's file has the name of the former.
bool is_trimmed_library(std::string_view file) {
    // The standard library, as far as it is met under training.
    constexpr std::string_view kStandard =
        "_collections_abc _distutils_hack _virtualenv _weakrefset abc argparse ast asyncio base64 bisect bz2 codecs "
        "collections concurrent contextlib contextvars copy copyreg csv ctypes dataclasses datetime decimal encodings enum "
        "fnmatch fractions functools genericpath glob gzip hashlib heapq http importlib inspect io ipaddress json keyword "
        "linecache locale logging lzma multiprocessing numbers operator os pathlib pickle pkgutil platform posixpath pprint "
        "queue random re runpy selectors shutil signal socket socketserver sre_compile sre_parse ssl statistics string struct "
        "subprocess sysconfig tarfile tempfile textwrap threading tokenize traceback types typing typing_extensions unittest "
        "urllib uuid warnings weakref xml zipfile";
    // Packages with code that trains, loads or logs; "datasets" is left out, as many call a folder of their own so.
    constexpr std::string_view kPackages =
        "PIL absl accelerate albumentations apex bitsandbytes cv2 deepspeed detectron2 diffusers einops fairscale fastai "
        "filelock flash_attn flax fsspec functorch h5py hydra huggingface_hub ignite jax joblib keras kornia lightning "
        "lightning_fabric matplotlib mmcv mmengine numba numpy nvidia omegaconf pandas peft pytorch_lightning ray requests "
        "safetensors scipy sentencepiece skimage sklearn tensorboard tensorboardX tensorflow timm tokenizers torch_geometric "
        "torchaudio torchdata torchmetrics torchtext torchvision tqdm transformers triton trl ultralytics urllib3 wandb "
        "webdataset xformers yaml";
    static const std::unordered_set<std::string_view> kFirst = [] {
        std::unordered_set<std::string_view> all;
        for (const std::string_view words : {kStandard, kPackages})
            any_word(words, [&](auto word) { return all.insert(word), false; });
        return all;
    }();
    if (file.starts_with('/') || file.starts_with('<')) return false;
    std::string_view first = file.substr(0, file.find('/'));
    if (first.size() == file.size() && first.ends_with(".py")) first.remove_suffix(3);
    return kFirst.contains(first);
}

bool is_anonymous(const Frame& frame) { return frame.function.starts_with('<') && frame.function != "<module>"; }

/// The function that a user's frame stands for: of a lambda or a comprehension the one of the same file that calls it.
const Frame& named_frame(const Stack& stack, std::size_t at) {
    for (std::size_t outer = at; outer < stack.size(); ++outer) {
        const Frame& frame = stack[outer];
        if (frame.native || frame.file.empty() || frame.file.starts_with('<')) continue;  // the interpreter's own
        if (frame.file != stack[at].file) break;
        if (!is_anonymous(frame)) return frame;
    }
    return stack[at];
}

template <typename Key>
const Under* innermost(const std::map<Key, Under>& entries, double least) {
    const Under* best = nullptr;
    for (const auto& [key, under] : entries)
        if (static_cast<double>(under.count) >= least && (!best || under.depth > best->depth)) best = &under;
    return best;
}

}  // namespace

bool contains_any(std::string_view text, std::string_view parts) {
    return any_word(parts, [&](std::string_view part) {
        return text.find(part) != std::string_view::npos || (part.starts_with('/') && text.starts_with(part.substr(1)));
    });
}

bool is_one_of(std::string_view word, std::string_view words) {
    return any_word(words, [&](std::string_view each) { return each == word; });
}

bool is_library(std::string_view file) {
    constexpr std::string_view kInstalled = "/site-packages/ /dist-packages/ /lib/python3 /lib64/python3 python3.zip";
    if (file.empty() || file.starts_with("<frozen") || file.starts_with("<built-in") || file.starts_with("<__array_function__"))
        return true;
    return contains_any(file, kInstalled) || record::is_torch(file) || is_trimmed_library(file);
}

std::optional<Framework> framework_in(std::string_view file) {
    if (record::is_torch(file)) return Framework::kPyTorch;
    if (!is_library(file)) return std::nullopt;
    constexpr std::pair<Framework, std::string_view> kPackages[] = {
        {Framework::kJax, "jax/ jaxlib/ flax/ optax/"},
        {Framework::kTensorFlow, "tensorflow/ keras/"},
        {Framework::kLightning, "lightning/ pytorch_lightning/ lightning_fabric/"},
        {Framework::kTrainer, "transformers/trainer"},
    };
    for (const auto& [framework, packages] : kPackages)
        if (any_word(packages, [&](std::string_view package) { return record::is_in(file, package); })) return framework;
    return std::nullopt;
}

bool is_framework(std::string_view file) {
    if (file.find("torch/utils/data") != std::string_view::npos) return false;
    const auto framework = framework_in(file);
    if (!framework) return file == "contextlib.py" || file.ends_with("/contextlib.py");
    return *framework != Framework::kLightning && *framework != Framework::kTrainer;
}

bool is_read(const Frame& frame) {
    const auto framework = framework_in(frame.file);
    if (framework == Framework::kTensorFlow) return frame.function.find("numpy") != std::string::npos;
    return framework == Framework::kJax &&
           (frame.file.ends_with("/array.py") || frame.function == "device_get" || frame.function == "block_until_ready");
}

bool is_loader(const Frame& frame) {
    constexpr std::string_view kFiles =
        "torch/utils/data/ dataloader data_loader tensorflow/python/data nvidia/dali webdataset/ grain/ litdata/ "
        "/multiprocessing/queues /multiprocessing/connection streaming/base /multiprocessing/pool";
    if (contains_any(frame.file, kFiles)) return true;
    const bool queue = frame.file.ends_with("/queue.py") || frame.file == "queue.py";
    if (queue && frame.function.starts_with("get")) return true;
    return frame.file.find("concurrent/futures") != std::string::npos && frame.function.starts_with("result");
}

bool is_backward(const Frame& frame) {
    if (frame.file.find("torch/autograd/") == std::string::npos) return false;
    return frame.function == "_engine_run_backward" || frame.function == "backward" || frame.function == "grad";
}

bool is_output(const Frame& frame) {
    constexpr std::string_view kFiles =
        "torch/serialization safetensors /json/encoder /csv.py /logging/ tensorboard torch/utils/tensorboard matplotlib/ PIL/ "
        "wandb/ mlflow/ /tqdm/ /shutil.py /zipfile imageio";
    if (contains_any(frame.file, kFiles)) return frame.function.find("load") == std::string::npos;
    const bool numpy = frame.file.find("numpy/lib/") != std::string::npos || frame.file.find("h5py/") != std::string::npos;
    return numpy && frame.function.find("save") != std::string::npos;
}

bool is_checkpoint(const Frame& frame) {
    constexpr std::string_view kFiles =
        "torch/serialization torch/distributed/checkpoint safetensors/ /orbax/ flax/training/checkpoints "
        "tensorflow/python/checkpoint";
    return contains_any(frame.file, kFiles) && !contains_any(frame.function, "load restore <module>");
}

bool is_compiler(const Frame& frame) {
    constexpr std::string_view kFiles =
        "torch/_dynamo/ torch/_inductor/ torch/utils/cpp_extension /jax/_src/compiler /jax/_src/interpreters/mlir "
        "/jax/_src/interpreters/partial_eval /triton/compiler/ /triton/backends/ /triton/testing";
    constexpr std::string_view kRuns =
        "_dynamo/eval_frame _dynamo/external_utils _dynamo/decorators _dynamo/hooks _dynamo/utils _inductor/cudagraph_trees "
        "_inductor/output_code _inductor/utils";
    if (!contains_any(frame.file, kFiles) || contains_any(frame.file, kRuns) || frame.function == "<module>") return false;
    if (frame.file.find("triton_heuristics") != std::string::npos) return contains_any(frame.function, "bench tune compile");
    return frame.function != "run" && frame.function != "__call__";
}

std::optional<std::size_t> user_frame(const Stack& stack) {
    bool python = false;
    for (std::size_t i = 0; i < stack.size(); ++i) {
        if (stack[i].native) continue;
        python = true;
        if (!is_library(stack[i].file)) return i;
    }
    if (python) return std::nullopt;
    for (std::size_t i = 0; i < stack.size(); ++i)
        if (!stack[i].file.empty() && !contains_any(stack[i].file, kRuntimes)) return i;
    return std::nullopt;
}

std::string Places::name(std::uint32_t place) const {
    if (place == kNoPlace) return "a place without frames";
    const Frame& frame = frames_[place];
    return fmt::format("{}:{}", frame.file.substr(frame.file.rfind('/') + 1), frame.line);
}

Places::Places(const Timeline& timeline) : timeline_(timeline), frames_(1), functions_(1, 0), stacks_(1, kNoStack) {
    std::map<std::pair<std::string, int>, std::map<std::string, std::uint32_t>> known;  // by file, line and function
    std::map<std::pair<std::string, std::string>, std::uint32_t> functions;
    of_stack_.assign(timeline.stacks.size(), kNoPlace);
    bool python = false;
    for (const Stack& stack : timeline.stacks)
        for (const Frame& frame : stack) python = python || !frame.native;
    // Last those that were cut off behind a comprehension: who calls it is known where its line was seen with all its frames.
    for (const bool cut : {false, true})
        for (std::uint32_t i = 0; i < timeline.stacks.size(); ++i) {
            const auto at = user_frame(timeline.stacks[i]);
            // In a Python program native frames alone are a framework's thread.
            if (!at || (python && timeline.stacks[i][*at].native)) continue;
            Frame frame = timeline.stacks[i][*at];
            frame.function = named_frame(timeline.stacks[i], *at).function;
            if (is_anonymous(frame) != cut) continue;
            auto& on_line = known[{frame.file, frame.line}];
            if (cut && !on_line.empty()) frame.function = on_line.begin()->first;
            const auto [place, fresh] = on_line.try_emplace(frame.function, static_cast<std::uint32_t>(frames_.size()));
            of_stack_[i] = place->second;
            if (!fresh) continue;
            stacks_.push_back(i);
            functions_.push_back(
                functions.try_emplace({frame.file, frame.function}, static_cast<std::uint32_t>(functions.size() + 1))
                    .first->second);
            frames_.push_back(std::move(frame));
        }
}

void Under::add(const Stack& stack, std::size_t at, std::size_t times) {
    if (last == &stack) return;
    if (count == 0) spot = {&stack, at}, depth = stack.size() - at;
    count += times;
    last = &stack;
}

void FrameCounts::add(const Stack& stack, std::size_t at, std::size_t times) {
    lines[line_of(stack[at])].add(stack, at, times);
    functions[function_of(stack[at])].add(stack, at, times);
}

const Under* FrameCounts::line(double least) const { return innermost(lines, least); }

const Under* FrameCounts::function(double least) const { return innermost(functions, least); }

const Under* FrameCounts::busiest(const Under& function) const {
    const Under* most = nullptr;
    for (const auto& [line, under] : lines)
        if (function_of(under.spot.frame()) == function_of(function.spot.frame()) && (!most || under.count > most->count))
            most = &under;
    return most;
}

}  // namespace millrace::diagnose
