#include "models/key_reader.h"

#include "absl/strings/str_cat.h"

namespace everwarm::models {

uint32_t KeyReader::Uint(const std::string& name, uint32_t low, uint32_t high,
                         std::optional<uint32_t> missing) {
  if (missing && !file_.Has(Key(name))) {
    return *missing;
  }
  // Some files give one number per layer; we run those with one for all.
  if (file_.IsArray(Key(name))) {
    return Uniform(name, low, high);
  }
  return Checked(name, file_.Uint(Key(name)), low, high);
}

std::vector<uint32_t> KeyReader::PerLayer(const std::string& name,
                                          uint32_t layers, uint32_t low,
                                          uint32_t high) {
  if (!file_.IsArray(Key(name))) {
    return std::vector<uint32_t>(layers, Uint(name, low, high, 0));
  }
  const auto values = file_.UintArray(Key(name));
  if (!values.ok() || values->size() < layers) {
    Fail(values.ok() ? file_.Invalid(absl::StrCat(
                           "key '", Key(name), "' has ", values->size(),
                           " elements for ", layers, " layers"))
                     : values.status());
    return std::vector<uint32_t>(layers, low);
  }
  std::vector<uint32_t> checked;
  for (uint32_t layer = 0; layer < layers; ++layer) {
    checked.push_back(Checked(name, (*values)[layer], low, high));
  }
  return checked;
}

float KeyReader::Float(const std::string& name, std::optional<float> missing) {
  const auto value =
      missing ? file_.FloatOr(Key(name), *missing) : file_.Float(Key(name));
  if (!value.ok()) {
    Fail(value.status());
    return 0.0f;
  }
  return *value;
}

uint32_t KeyReader::Checked(const std::string& name,
                            absl::StatusOr<uint32_t> value, uint32_t low,
                            uint32_t high) {
  if (!value.ok()) {
    Fail(value.status());
    return low;
  }
  if (*value < low || *value > high) {
    Fail(file_.Invalid(absl::StrCat("key '", Key(name), "' is ", *value,
                                    ", expected ", low, " to ", high)));
    return low;
  }
  return *value;
}

uint32_t KeyReader::Uniform(const std::string& name, uint32_t low,
                            uint32_t high) {
  const auto values = file_.UintArray(Key(name));
  if (!values.ok() || values->empty()) {
    Fail(file_.Invalid(
        absl::StrCat("key '", Key(name), "' is not an array of integers")));
    return low;
  }
  for (const uint32_t value : *values) {
    if (value != values->front()) {
      Fail(absl::UnimplementedError(absl::StrCat(
          file_.path(), ": key '", Key(name), "' differs between layers (",
          values->front(), ", ", value, "); only equal layers run here")));
      return low;
    }
  }
  return Checked(name, values->front(), low, high);
}

}  // namespace everwarm::models
