#include "record/python_files.h"

#include <algorithm>

namespace millrace::record {
namespace {

constexpr std::string_view kInstalled[] = {"site-packages/", "dist-packages/"};
constexpr std::string_view kTorch[] = {"torch/nn/",        "torch/optim/",  "torch/utils/",    "torch/autograd/",
                                       "torch/cuda/",      "torch/amp/",    "torch/_",         "torch/fx/",
                                       "torch/functional", "torch/storage", "torch/backends/", "torch/distributed/"};

}  // namespace

bool is_in(std::string_view file, std::string_view package) {
    for (const std::string_view folder : kInstalled)
        if (const std::size_t at = file.rfind(folder); at != std::string_view::npos)
            return file.substr(at + folder.size()).starts_with(package);
    for (std::size_t at = file.find(package); at != std::string_view::npos; at = file.find(package, at + 1))
        if (at == 0 || file[at - 1] == '/') return true;
    return false;
}

bool is_torch(std::string_view file) {
    return std::ranges::any_of(kTorch, [file](std::string_view part) { return is_in(file, part); });
}

}  // namespace millrace::record
