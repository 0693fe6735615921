#include "io/recipe_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace millrace::io {
namespace {

constexpr std::size_t kLargestRecipe = 1 << 20;

struct FileCloser {
    void operator()(std::FILE* file) const { std::fclose(file); }
};

}  // namespace

base::Result<std::string> read_recipe_file(const std::string& path) {
    const std::unique_ptr<std::FILE, FileCloser> file(std::fopen(path.c_str(), "rb"));
    if (file == nullptr) return base::Error{fmt::format("cannot read the recipe: {}", std::strerror(errno)), path};
    std::string text(kLargestRecipe + 1, '\0');
    const std::size_t count = std::fread(text.data(), 1, text.size(), file.get());
    if (std::ferror(file.get()) != 0) return base::Error{fmt::format("cannot read the recipe: {}", std::strerror(errno)), path};
    if (count > kLargestRecipe) return base::Error{"the file is larger than 1 MiB, which no recipe is", path};
    text.resize(count);
    return text;
}

}  // namespace millrace::io
