"""Ask vLLM for tokens, without a tokenizer. Needs vLLM 0.5 or newer."""

import os

SETTINGS = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}
"""Nothing leaves the machine, and the engine works in this process, whose libraries are seen."""
_SHARE = 0.5
"""Share of the GPU's memory that the server may take."""


class Server:
    """vLLM with one model.

    Args:
        folder: of the model; vLLM's own files go there, too.
        places: most tokens of a sequence.
        seed: of vLLM.
    """

    def __init__(self, folder, places, seed):
        os.environ.update(SETTINGS)
        for name in ("VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT"):
            os.environ[name] = os.path.join(folder, name.lower())
        from vllm import LLM, SamplingParams

        self._sampling = SamplingParams
        self._model = LLM(
            model=folder,
            skip_tokenizer_init=True,
            max_model_len=places,
            gpu_memory_utilization=_SHARE,
            enable_prefix_caching=False,  # a prompt is asked again and again
            seed=seed,
        )

    def answer(self, prompts, count):
        """Return the tokens of greedy answers, and the log probability of each token."""
        how = self._sampling(
            temperature=0.0, max_tokens=count, ignore_eos=True, logprobs=1, detokenize=False
        )
        found = []
        for answer in self._generate(prompts, how):
            part = answer.outputs[0]
            tokens = list(part.token_ids)
            stated = [step[token].logprob for token, step in zip(tokens, part.logprobs)]
            found.append((tokens, stated))
        return found

    def serve(self, prompts, count):
        """Return the tokens of greedy answers, without log probabilities."""
        how = self._sampling(temperature=0.0, max_tokens=count, ignore_eos=True, detokenize=False)
        return [list(answer.outputs[0].token_ids) for answer in self._generate(prompts, how)]

    def _generate(self, prompts, how):
        asked = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        return self._model.generate(asked, how, use_tqdm=False)
