"""The public key: whoever has it encrypts, adds and re-randomises."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args, overload

import gmpy2
import numpy as np
from numpy.typing import ArrayLike

from tacit.crypto.backend import backend
from tacit.crypto.layout import Beyond, Layout
from tacit.crypto.ring import Ring, Table
from tacit.crypto.rows import Rows, from_integers, in_blocks, random_below
from tacit.errors import ConfigError, KeysError

if TYPE_CHECKING:
    from tacit.crypto.paillier.ciphertext import Ciphertext
    from tacit.crypto.paillier.vector import CiphertextVector

Kind = Literal["standard", "subgroup"]
Exponents = Literal["half", "short"]

SECURITY = {1024: 80, 2048: 112, 3072: 128, 4096: 152}  # bits of security of a modulus (NIST SP 800-57)
SAFE_BITS = 2048
SMALLEST_BITS = 64  # below this even the tests' arithmetic makes no sense
LARGEST_BITS = 16384

ASSUMPTIONS = {
    ("standard", "half"): "decisional composite residuosity, and that powers h^s with s of half the key's length are "
    "indistinguishable from those with s of full length (Damgård, Jurik and Nielsen 2010)",
    ("standard", "short"): "decisional composite residuosity, and that discrete logarithms with exponents of only "
    "twice the security level are hard: stronger than usual, off by default",
    ("subgroup", "half"): "decisional composite residuosity in a secret subgroup of small order (Ma, Han and Lei "
    "2021): not a standard assumption",
}


class Noise(Protocol):
    """Whatever has noise to encrypt with: the key that draws it, or a pool that was filled before."""

    def take(self, count: int, *, workers: int | None = None, aside: bool = False) -> Rows:
        """Return ``count`` fresh encryptions of zero, each used once.

        With ``aside`` other threads of the process are not held up meanwhile.
        """
        ...


def exponent_bits(bits: int, kind: Kind, exponents: Exponents) -> int:
    """Return the length of the random exponent that a key of ``bits`` bits uses.

    >>> exponent_bits(2048, "standard", "half"), exponent_bits(3072, "subgroup", "half")
    (1024, 512)
    """
    if (kind, exponents) not in ASSUMPTIONS:
        raise ConfigError(
            f"Keys of kind {kind!r} with {exponents!r} exponents do not exist. Expected one of "
            f"{', '.join(f'{k}/{e}' for k, e in ASSUMPTIONS)}."
        )
    if kind == "standard" and exponents == "half":
        return (bits + 1) // 2
    if bits not in SECURITY:
        raise ConfigError(
            f"{'Subgroup keys' if kind == 'subgroup' else 'Short exponents'} are defined for "
            f"{', '.join(map(str, SECURITY))} bits, not for {bits}. Choose one of these, or the standard kind."
        )
    return {"subgroup": 4, "standard": 2}[kind] * SECURITY[bits] + (32 if kind == "standard" else 0)


@dataclass(frozen=True, kw_only=True)
class PublicKey:
    r"""Encrypts :math:`m` as :math:`(1 + mn)\, h^s \bmod n^2` with a fresh random :math:`s`.

    With :math:`g = n + 1` the message costs one multiplication, and with :math:`h = (-x^2)^n \bmod n^2` fixed by the
    key, the noise :math:`h^s` is a product of entries of a table, without squarings (Damgård, Jurik and Nielsen 2010).
    The table is made once a key and kept. Whoever has the private key encrypts faster: :class:`PrivateKey`.

    A key is only as good as the way it came: compare its :attr:`fingerprint` with the owner's over another channel.

    Attributes:
        n: the modulus, a product of two primes.
        h: the fixed n-th residue whose powers are the noise.
        kind: ``standard``, or ``subgroup`` for keys whose noise lies in a small secret subgroup.
        exponents: ``half`` the key's length, or ``short`` (twice the security level).
    """

    n: int
    h: int
    kind: Kind = "standard"
    exponents: Exponents = "half"

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind) or self.exponents not in get_args(Exponents):
            raise KeysError(f"Unknown kind of Paillier key: {self.kind!r} with {self.exponents!r} exponents.")
        try:
            exponent_bits(self.bits, self.kind, self.exponents)
        except ConfigError as error:  # a length, or a combination, that nothing could be encrypted with
            raise KeysError(str(error)) from error
        if self.n < 1 << (SMALLEST_BITS - 1) or self.n % 2 == 0 or gmpy2.is_square(self.n) or gmpy2.is_prime(self.n):
            raise KeysError("The key's modulus is no product of two different odd primes. Use a key that Tacit made.")
        if not 1 < self.h < self.square - 1 or gmpy2.gcd(self.h, self.n) != 1 or self.h % self.n in (1, self.n - 1):
            raise KeysError(
                "The key's h is trivial or no unit: whoever made this key could read what it encrypts, or anybody "
                "could. Don't use it; ask its owner for the fingerprint."
            )
        if gmpy2.jacobi(self.h, self.n) != 1:
            raise KeysError("The key's h is no n-th residue of the kind that is expected. Use a key that Tacit made.")

    @functools.cached_property
    def square(self) -> int:
        """The modulus of ciphertexts, n squared."""
        return self.n * self.n

    @property
    def bits(self) -> int:
        """The length of n."""
        return self.n.bit_length()

    @property
    def insecure(self) -> bool:
        """Whether the key is too short for anything but experiments."""
        return self.bits < SAFE_BITS

    @property
    def assumption(self) -> str:
        """What has to be hard for the key to be secure."""
        return ASSUMPTIONS[self.kind, self.exponents]

    @functools.cached_property
    def identity(self) -> bytes:
        """The SHA-256 digest of everything in the key."""
        text = (
            f"tacit paillier public key 1\nn {self.n:x}\nh {self.h:x}\nkind {self.kind}\nexponents {self.exponents}\n"
        )
        return hashlib.sha256(text.encode()).digest()

    @property
    def fingerprint(self) -> str:
        """The identity as people compare it: 32 groups of two digits."""
        return self.identity.hex(":")

    def to_dict(self) -> dict[str, Any]:
        """Return the key as plain values, numbers in hexadecimal."""
        return {"n": f"{self.n:x}", "h": f"{self.h:x}", "kind": self.kind, "exponents": self.exponents}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> PublicKey:
        """Read what :meth:`to_dict` returned, from anyone: the key is checked, and an absurd length refused at once."""
        try:
            n, h = int(plain["n"], 16), int(plain["h"], 16)
            kind, exponents = plain["kind"], plain["exponents"]
        except (KeyError, TypeError, ValueError) as error:
            raise KeysError(
                f"Expected n, h, kind and exponents of a Paillier key, n and h in hexadecimal: {error!r}."
            ) from error
        if n < 1 or n.bit_length() > LARGEST_BITS:
            raise KeysError(f"Expected a positive n of at most {LARGEST_BITS} bits, got one of {n.bit_length()}.")
        return cls(n=n, h=h, kind=kind, exponents=exponents)

    @functools.cached_property
    def ring(self) -> Ring:
        """The integers modulo n squared."""
        return backend().ring(self.square)

    @functools.cached_property
    def residues(self) -> Ring:
        """The integers modulo n, where messages live."""
        return backend().ring(self.n)

    @functools.cached_property
    def table(self) -> Table:
        """The powers of h; building them takes a part of a second, once."""
        return self.ring.table(self.h, bits=exponent_bits(self.bits, self.kind, self.exponents))

    def take(self, count: int, *, workers: int | None = None, aside: bool = False) -> Rows:
        """Return ``count`` fresh encryptions of zero, :math:`h^s`."""
        return self.table.powers(random_below(1 << self.table.bits, count), workers=workers, aside=aside)

    def layout(self, values: ArrayLike, *, clip: float = 1.0, bits: int = 24, summands: int = 128) -> Layout:
        """Return the layout for such a vector: integers are kept exactly, floats are clipped and rounded."""
        array = np.asarray(values)
        if array.ndim != 1:
            raise ConfigError(f"Expected an integer or a vector of numbers, got an array of shape {array.shape}.")
        if np.issubdtype(array.dtype, np.integer):
            bound = 1 << 31
            return Layout(length=len(array), bound=bound, summands=summands, key_bits=self.bits)
        return Layout.floats(length=len(array), clip=clip, bits=bits, summands=summands, key_bits=self.bits)

    @overload
    def encrypt(self, message: int | np.integer[Any], *, noise: Noise | None = None) -> Ciphertext: ...

    @overload
    def encrypt(
        self,
        message: ArrayLike,
        layout: Layout | None = None,
        *,
        beyond: Beyond | None = None,
        noise: Noise | None = None,
        shift: Rows | None = None,
        workers: int | None = None,
    ) -> CiphertextVector: ...

    def encrypt(
        self,
        message: Any,
        layout: Layout | None = None,
        *,
        beyond: Beyond | None = None,
        noise: Noise | None = None,
        shift: Rows | None = None,
        workers: int | None = None,
    ) -> Ciphertext | CiphertextVector:
        """Encrypt an integer, or a vector in the slots of a layout.

        Args:
            message: an integer of magnitude below n/2, or a vector of floats or integers.
            layout: how a vector is written; by default floats in [-1, 1] with 24 bits, or 32-bit integers, for sums of
                up to 128 vectors.
            beyond: whether numbers beyond the layout's clip are clipped (and counted), or refused; by default floats
                are clipped, and integers refused, since they claim to be exact.
            noise: where the noise comes from; by default the key draws it now.
            shift: numbers that are added to a vector's packed rows modulo n, as they are: such as masks that whoever
                decrypts takes off.
            workers: how many cores to use; by default all.
        """
        source = self if noise is None else noise
        if isinstance(message, (int, np.integer)):
            from tacit.crypto.paillier.ciphertext import Ciphertext

            row = from_integers([self.residue(int(message))], self.ring.width)
            return Ciphertext(key=self, row=self._blinded([row], source.take(1)))
        from tacit.crypto.paillier.vector import CiphertextVector

        layout = self.layout(message) if layout is None else layout
        if layout.key_bits != self.bits:
            raise ConfigError(f"The layout is for keys of {layout.key_bits} bits, and this one has {self.bits}.")
        usual: Beyond = "refuse" if layout.step is None else "clip"
        packed, clipped = layout.encode(message, beyond=beyond or usual)

        def encrypted(part: slice) -> Rows:
            some = [packed[part]] if shift is None else [packed[part], shift[part]]
            return self._blinded(some, source.take(len(some[0]), workers=workers), workers)

        rows = in_blocks(len(packed), encrypted)
        return CiphertextVector(key=self, layout=layout, summands=1, rows=rows, clipped=clipped)

    def residue(self, message: int) -> int:
        """Return the number below n that stands for a signed integer."""
        if 2 * abs(message) >= self.n:
            raise ConfigError(
                f"An integer of {message.bit_length()} bits does not fit a key of {self.bits} bits, expected a "
                "magnitude below n/2. Use a longer key, or split the number."
            )
        return message % self.n

    def power(self, number: int) -> int:
        """Return the n-th power of a secret number modulo n; :meth:`PrivateKey.root` alone takes it back."""
        return int(gmpy2.powmod_sec(number, self.n, self.n))

    def signed(self, residue: int) -> int:
        """Return the signed integer that a number below n stands for."""
        return residue - self.n if 2 * residue > self.n else residue

    def _blinded(self, messages: Sequence[Rows], noise: Rows, workers: int | None = 1) -> Rows:
        """Return encryptions of the sums of messages, modulo n."""
        return self.ring.affine([(rows, self.n) for rows in messages], 1, times=noise, workers=workers)
